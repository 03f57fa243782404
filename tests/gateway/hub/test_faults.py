"""What goes wrong: faulty dialects, clients that vanish, a disk that fails, a gateway that ends."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from busd.gateway.conversation import Author, Entry
from busd.gateway.dialect import Dialect
from busd.gateway.effects import Close, Effects, Enter, Frame, Post, Say, Send
from busd.gateway.events import Event, Posted, Refused, Replied, Said
from busd.testing.gateway import GatewayKit
from tests.gateway.hub.probe import LOBBY, Probe, join

pytestmark = pytest.mark.anyio


class Faulty(Probe):
    """Fails where the frame, or the text that it is shown, says so."""

    prefix = "faulty"

    def receive(self, frame: Frame) -> Effects:
        if frame == "fail":
            raise ZeroDivisionError("secret")
        yield from super().receive(frame)

    def show(self, event: Event) -> Effects:
        if isinstance(event, Posted) and event.entry.text == "fail":
            raise ZeroDivisionError("secret")
        if isinstance(event, Posted) and event.entry.text == "misuse":
            yield Say(LOBBY, Entry(text="never"))
        yield from super().show(event)


async def test_a_dialect_that_fails_closes_its_connection_and_no_other(kit: GatewayKit) -> None:
    ann, bad = await join(kit), await join(kit, dialect=Faulty)
    await ann.enter()
    await bad.enter()
    with capture_logs() as logs:
        await bad.client.receive("fail")
    assert bad.client.outputs[-1] == Close("internal error", 1011)
    assert [each["event"] for each in logs if each["log_level"] == "error"] == ["dialect.failed"]
    await bad.leave()
    await kit.settle()
    await ann.must(Post(LOBBY, Entry(text="still here")))
    assert (await ann.enter()).present == [Author("owner")]


@pytest.mark.parametrize("text", ["fail", "misuse"])
async def test_a_dialect_that_fails_to_show_something_keeps_it_from_nobody(
    kit: GatewayKit, text: str
) -> None:
    first, bad, last = await join(kit), await join(kit, dialect=Faulty), await join(kit)
    for client in (first, bad, last):
        await client.enter()
    with capture_logs():
        await first.must(Post(LOBBY, Entry(text=text)))
    assert len(first.all(Posted)) == len(last.all(Posted)) == 1
    assert bad.client.outputs[-1] == Close("internal error", 1011)
    assert not last.all(Said)
    before = len(bad.client.outputs)
    await first.must(Post(LOBBY, Entry(text="more")))
    assert len(bad.client.outputs) == before


async def test_a_client_that_vanishes_while_its_words_are_kept_leaves_nothing_half_done(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    ann, eve = await join(kit), await join(kit)
    await ann.enter()
    await eve.enter()
    eve.dialect.wanted = [Say(LOBBY, Entry(text="my last words")), Post(LOBBY, Entry(text="no"))]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(eve.client.receive, "")
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await eve.leave()
    await kit.settle()
    assert [each.entry.text for each in ann.all(Said)] == ["my last words"]
    assert not ann.all(Posted)
    bob.words().reply("farewell")
    await kit.settle()
    assert ann.last(Replied).entry.text == "farewell"


async def test_a_client_that_vanishes_while_it_enters_is_not_present(kit: GatewayKit) -> None:
    eve = await join(kit)
    eve.dialect.wanted = [Enter(LOBBY)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(eve.client.receive, "")
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(eve.leave)
    await kit.settle()
    assert not kit.hub.rooms
    assert not kit.hub.sessions


async def test_the_effects_after_the_end_of_a_client_are_not_performed(kit: GatewayKit) -> None:
    ann = await join(kit)
    await ann.enter()

    class Leaving(Probe):
        def receive(self, frame: Frame) -> Effects:
            yield Enter(LOBBY)
            yield Send("one")
            self.wanted.append(Send("reached"))
            yield Post(LOBBY, Entry(text="never"))

    eve = await join(kit, dialect=Leaving)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(eve.client.receive, "")
        await eve.leave()
    await kit.settle()
    assert not ann.all(Posted)


async def test_while_the_disk_fails_requests_are_refused_and_the_connection_lives_on(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    await ann.say("hello")
    await kit.settle()
    words = bob.words()
    await kit.settle()
    await kit.store.close()
    refused = await ann.do(Post(LOBBY, Entry(text="hi")))
    assert isinstance(refused, Refused)
    assert (refused.rule, refused.retry_seconds) == ("busy", 5.0)
    content = {"type": "tg_reply", "content": {"text": "hi"}, "reply_to_message_id": words.id}
    sent = bob.peer.send(words.chat, content)
    await kit.settle()
    assert sent.result.acks[0].should_retry
    assert not ann.all(Replied)
    assert not ann.client.is_closed


async def test_a_gateway_that_stops_refuses_what_comes_then(kit: GatewayKit) -> None:
    ann, eve = await join(kit), await join(kit)
    await ann.enter()
    await kit.restart()
    assert ann.client.session.is_closed
    ann.dialect.wanted = [Post(LOBBY, Entry(text="too late"))]
    await ann.client.receive("")
    assert not ann.all(Refused)  # nobody is there to read it
    eve.client.session.is_closed = False
    assert (await eve.refused(Enter(LOBBY))).rule == "busy"


async def test_the_host_shows_why_a_frame_was_not_passed_on(kit: GatewayKit) -> None:
    ann = await join(kit)
    ann.client.session.refuse("limit", "too many frames")
    assert ann.dialect.refusals == [("limit", "too many frames")]
    assert ann.client.take_frames()[-1] == "limit"


async def test_what_a_dialect_opens_with_is_performed(kit: GatewayKit) -> None:
    class Greeting(Dialect):
        prefix = "greeting"

        def __init__(self, hello: Any) -> None:
            super().__init__(hello)
            self.is_refused = False

        def open(self) -> Effects:
            yield Send("welcome")
            yield Enter("")
            if self.is_refused:
                yield Send("no such place")
            yield Close("bye")

        def show(self, event: Event) -> Effects:
            self.is_refused = isinstance(event, Refused)
            yield from ()

    client = await kit.connect(Greeting)
    assert client.take() == [Send("welcome"), Send("no such place"), Close("bye")]
