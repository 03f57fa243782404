"""Local peers: those without a socket."""

from __future__ import annotations

from msgspec import Raw

from busd.bus.bus import Bus
from busd.bus.local import LocalPeer
from busd.bus.message import Ack, Message
from busd.bus.methods import methods
from busd.plugin.context import Sent


def test_whoever_passes_a_message_on_still_gets_what_is_sent_meanwhile() -> None:
    bus = Bus(methods)
    first_got: list[str] = []

    def send(message_id: str) -> None:
        message = Message(to="app:x", sender="tg:1", message_id=message_id, payload=Raw(b"{}"))
        bus.deliver(message, Sent(message_id), 0, second.allowance)

    def take_first(call_id: int, message: Message) -> bool:
        first_got.append(str(message.message_id))
        if message.message_id == "one":
            bus.deliver_past(first, message, Sent("one"), 0)
        first.answer(call_id, Ack())
        return True

    def take_second(call_id: int, message: Message) -> bool:
        second.answer(call_id, Ack())
        if message.message_id == "one" and len(first_got) == 1:
            first_got.append("-")
            send("two")
        return True

    first = LocalPeer("plugin:first", bus, take_first)
    second = LocalPeer("plugin:second", bus, take_second)
    for peer in (first, second):
        bus.join(peer)
        bus.subscribe(peer, "app:x")
    send("one")
    assert first_got == ["one", "-", "two"]
