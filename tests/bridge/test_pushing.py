"""Messages of users: the bus accepts each one once, also if it is away for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd import Client, Incoming, Refuse
from busd.bridge import Attachment, Inbound, PushRefused, TooLarge
from tests.bridge.toy import Place, poll_until
from tests.daemons import PATIENCE_SECONDS, Daemon, open_daemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A bus of its own: there is one `system:route`, and some tests end the bus."""
    with open_daemon("uvloop", {"plugins.disabled": ["bub"]}) as daemon:
        yield daemon


def restart(daemon: Daemon) -> None:
    """Start the bus again; not in a thread of its own, with which it would end."""
    daemon.start_again("uvloop", {"plugins.disabled": ["bub"]})


class Route:
    """Answers what is pushed; a test says how."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.refusals: list[Refuse] = []

    async def take(self, message: Incoming) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.got.append({"sender": message.sender, **message.payload})

    def texts(self) -> list[str]:
        return [each["content"]["text"] for each in self.got]


@asynccontextmanager
async def routing(place: Place, name: str = "router") -> AsyncIterator[Route]:
    route = Route()
    client = Client(name, address=place.address, timeout_seconds=PATIENCE_SECONDS)
    client.on()(route.take)
    async with client:
        await client.subscribe("system:route")
        yield route


def inbound(text: str, external_id: str = "4711", **more: Any) -> Inbound:
    return Inbound(chat_id="1", text=text, sender_id="ann", external_id=external_id, **more)


async def test_a_message_says_who_wrote_it_and_where(place: Place) -> None:
    async with routing(place) as route, place.serving() as bridge:
        receipt = await bridge.push(
            inbound(
                "hi",
                username="ann1",
                full_name="Ann",
                thread_id="t1",
                attachments=(Attachment(kind="image", url="http://127.0.0.1/cat.png"),),
                metadata={"edited": True},
            )
        )
        assert receipt.acks[0].success
        assert bridge.status.pushed == 1
        assert bridge.status.last_update_at
    [got] = route.got
    address = f"{place.prefix}:1"
    assert (got["sender"], got["from"], got["messageId"]) == (address, address, "4711")
    assert got["content"] == {
        "text": "hi",
        "senderId": "ann",
        "channel": place.prefix,
        "username": "ann1",
        "full_name": "Ann",
        "chat_id": "1",
        "thread_id": "t1",
        "attachments": [{"kind": "image", "url": "http://127.0.0.1/cat.png"}],
        "metadata": {"edited": True},
    }


async def test_a_message_that_is_pushed_again_is_delivered_once(place: Place) -> None:
    async with routing(place) as route:
        for _ in range(2):  # by the same process, and by the next one
            async with place.serving() as bridge:
                for _ in range(2):
                    receipt = await bridge.push(inbound("hi", "9" * 300))
        assert receipt.is_duplicate
    assert route.texts() == ["hi"]


async def test_a_message_for_a_route_that_is_away_is_kept(place: Place) -> None:
    async with place.serving() as bridge:
        assert (await bridge.push(inbound("hi"))).is_kept
        async with routing(place) as route:
            await poll_until(lambda: route.got)
    assert route.texts() == ["hi"]


async def test_what_the_route_refuses_is_told_to_the_bridge(place: Place) -> None:
    async with routing(place) as route, place.serving() as bridge:
        route.refusals = [Refuse("unknown channel")]
        with pytest.raises(PushRefused, match=r"^unknown channel$"):
            await bridge.push(inbound("hi"))
        assert bridge.status.refused == 1
        route.refusals = [Refuse("later", retry_seconds=0.05)]
        await bridge.push(inbound("hi again", "2"))  # the bus tries again
        await poll_until(lambda: route.got)
    assert route.texts() == ["hi again"]


async def test_a_message_over_the_limit_of_the_bus_is_refused_at_once(place: Place) -> None:
    async with routing(place) as route, place.serving() as bridge:
        for size in (1_100_000, 20_000_000):
            with pytest.raises(TooLarge, match="too large for the bus"):
                await bridge.push(inbound("x" * size))
        with pytest.raises(ValueError, match="chat_id"):
            await bridge.push(Inbound(chat_id="a b", text="", sender_id="", external_id="1"))
        await bridge.push(inbound("short"))
    assert route.texts() == ["short"]


async def test_a_message_may_go_to_one_agent(place: Place) -> None:
    async with place.agent() as agent, place.serving() as bridge:
        name = agent.bus.client_id
        async with anyio.create_task_group() as tasks:

            async def answer() -> None:
                message = await anext(agent.bus.messages())
                assert message.payload["content"]["text"] == "hi"
                await message.reply()

            tasks.start_soon(answer)
            receipt = await bridge.push(inbound("hi"), to=name, expect=True)
            assert receipt.acks[0].client_id == name
        with pytest.raises(PushRefused, match="nobody is connected as agent:nobody"):
            await bridge.push(inbound("hi", "2"), to="agent:nobody", expect=True)


async def test_cancel_names_the_chat_and_the_turn(place: Place) -> None:
    async with routing(place) as route, place.serving() as bridge:
        await bridge.cancel("1", "4711")
        route.refusals = [Refuse("not yours")]
        with pytest.raises(Refuse, match="not yours"):
            await bridge.cancel("1")
    [got] = route.got
    assert got["sender"] == f"{place.prefix}:1"
    data = {"channel": place.prefix, "chat_id": "1", "turn": "4711"}
    assert got["content"] == {"event": "turn.cancel", "data": data}


async def test_while_the_bus_is_away_a_push_waits_for_it(
    place: Place,
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("busd.bridge.pushing._ATTEMPT_SECONDS", 0.2)  # shorter than it is away
    async with place.serving() as bridge:
        daemon.process.kill()
        daemon.wait()
        await poll_until(lambda: not bridge.status.is_on_bus)
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(bridge.push, inbound(str(number), str(number)))
            await poll_until(lambda: "is sent again" in caplog.text)
            restart(daemon)
            async with routing(place) as route:
                await poll_until(lambda: len(route.got) == 3)
                await poll_until(lambda: bridge.status.pushed == 3)
    assert sorted(route.texts()) == ["0", "1", "2"]


async def test_messages_pushed_while_the_bus_is_killed_are_delivered_once(
    place: Place, daemon: Daemon
) -> None:
    async with place.serving() as bridge, anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(bridge.push, inbound(str(number), str(number)))
            if number == 10:
                await poll_until(lambda: bridge.status.pushed)
                daemon.process.kill()
        daemon.wait()
        restart(daemon)
        async with routing(place) as route:
            await poll_until(lambda: bridge.status.pushed == 20)
            await poll_until(lambda: len(route.got) >= 20)
            # Whatever was there twice would have been delivered before this one.
            await bridge.push(inbound("last", "last"))
    assert sorted(route.texts()) == sorted([*map(str, range(20)), "last"])


async def test_a_bridge_waits_for_a_bus_that_is_not_there_yet(
    place: Place, daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.process.kill()
    daemon.wait()
    async with place.bridge() as bridge, anyio.create_task_group() as tasks:
        tasks.start_soon(bridge.push, inbound("early"))
        await poll_until(lambda: "waiting for it" in caplog.text)
        restart(daemon)
        await poll_until(lambda: bridge.status.pushed == 1)
