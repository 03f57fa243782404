"""Messages that were written while the bridge, the gateway or the bus was away."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from busd import Refuse
from tests.bridge.toy import poll_until
from tests.daemons import Daemon, open_daemon
from tests.plugins.discord.place import Place, Route
from tests.plugins.discord.world import BOT, Fault, World

pytestmark = pytest.mark.anyio


async def test_what_was_written_while_the_bridge_was_away_is_read(
    place: Place, world: World, route: Route
) -> None:
    chat, room, quiet = world.direct(), world.add(), world.add()
    async with place.serving():
        world.say(chat, "one")
        await route.wait_for(1)
    written = [f"missed {number}" for number in range(230)]
    for text in written:
        world.say(chat, text)
    world.say(room, "not for the bot")
    world.say(room, f"<@{BOT}> in the room")
    async with place.serving():
        await route.wait_for(1 + len(written) + 1)
        world.say(chat, "live")
        texts = await route.wait_for(len(written) + 3)
    of_chat = [each for each in texts if each != "in the room"]
    assert of_chat == ["one", *written, "live"]
    assert "in the room" in texts
    assert not any(str(quiet.id) in each for each in world.requests)


async def test_a_live_message_waits_for_those_before_it(
    place: Place, world: World, route: Route
) -> None:
    chat = world.direct()
    async with place.serving():
        world.say(chat, "one")
        await route.wait_for(1)
    world.say(chat, "two")
    world.faults.append(Fault("GET", r"/messages$", 503, times=1))
    async with place.serving():
        world.say(chat, "three")
        assert await route.wait_for(3) == ["one", "two", "three"]


async def test_the_first_message_of_a_user_is_found_with_the_second(
    place: Place, world: World, route: Route
) -> None:
    """Discord does not list direct messages, so the bridge cannot know of an unknown user."""
    chat = world.direct()
    async with place.serving():
        pass
    world.say(chat, "one")
    async with place.serving():
        world.say(chat, "two")
        assert await route.wait_for(2) == ["one", "two"]


async def test_a_connection_that_breaks_is_resumed(
    place: Place, world: World, route: Route
) -> None:
    chat = world.direct()
    async with place.serving() as bridge:
        place.server.drop()
        await world.wait_until(lambda: not place.server.is_joined)
        world.say(chat, "while it was away")
        assert await route.wait_for(1) == ["while it was away"]
        place.server.ask_to_reconnect()
        await world.wait_until(lambda: place.server.resumed == 2)
        world.say(chat, "and later")
        assert await route.wait_for(2) == ["while it was away", "and later"]
        await poll_until(lambda: bridge.status.state == "connected")
    assert place.server.identified == 1


async def test_a_session_that_is_invalid_is_begun_anew_and_nothing_is_lost(
    place: Place, world: World, route: Route
) -> None:
    chat = world.direct()
    async with place.serving():
        world.say(chat, "one")
        await route.wait_for(1)
        place.server.invalidate()
        world.say(chat, "two")
        await world.wait_until(lambda: place.server.identified == 2)
        world.say(chat, "three")
        assert await route.wait_for(3) == ["one", "two", "three"]


async def test_a_duplicate_is_pushed_once(place: Place, world: World, route: Route) -> None:
    chat = world.direct()
    async with place.serving():
        message = world.say(chat, "one")
        world.dispatch("MESSAGE_CREATE", message)
        world.say(chat, "two")
        await route.wait_for(2)
    async with place.serving():
        world.dispatch("MESSAGE_CREATE", message)
        world.say(chat, "three")
        assert await route.wait_for(3) == ["one", "two", "three"]


async def test_messages_out_of_order_are_all_pushed(
    place: Place, world: World, route: Route
) -> None:
    chat = world.direct()
    deliver = world.dispatch
    async with place.serving():
        world.say(chat, "first")
        await route.wait_for(1)
        held: list[dict[str, object]] = []
        world.dispatch = lambda name, data: held.append(data)
        for number in range(10):
            world.say(chat, str(number))
        random.Random(1).shuffle(held)
        for message in held:
            deliver("MESSAGE_CREATE", message)
        texts = await route.wait_for(11)
    assert sorted(texts[1:]) == [str(number) for number in range(10)]


async def test_a_flood_is_read_from_the_history_and_memory_stays_bounded(
    place: Place, world: World, route: Route
) -> None:
    chat = world.direct()
    async with place.serving():
        texts = [str(number) for number in range(350)]
        for text in texts:
            world.say(chat, text)
        assert await route.wait_for(350) == texts


async def test_a_message_of_ten_megabytes_is_refused_and_the_user_learns_it(
    place: Place, world: World, route: Route
) -> None:
    chat = world.direct()
    async with place.serving():
        world.say(chat, "x" * 10_000_000)
        world.say(chat, "small")
        assert await route.wait_for(1) == ["small"]
        [said] = world.said(chat)
    assert said.startswith("⚠️ Your message was not accepted: the message is too large for the bus")


async def test_a_message_that_the_bus_refuses_is_answered_and_not_tried_again(
    place: Place, world: World, route: Route
) -> None:
    chat = world.direct()
    route.refusals.append(Refuse("no agents today"))
    async with place.serving():
        world.say(chat, "one")
        world.say(chat, "two")
        assert await route.wait_for(1) == ["two"]
    assert world.said(chat) == ["⚠️ Your message was not accepted: no agents today"]


@pytest.fixture
def own_bus(tmp_path: Path) -> Iterator[Daemon]:
    with open_daemon("uvloop", {"plugins.disabled": ["bub"]}) as daemon:
        yield daemon


async def test_while_the_bus_is_away_messages_wait_and_none_is_doubled(
    place: Place, world: World, own_bus: Daemon
) -> None:
    place.address = f"unix:{own_bus.path}"
    chat = world.direct()
    async with place.serving() as bridge:
        async with place.routing() as route:
            world.say(chat, "one")
            await route.wait_for(1)
        own_bus.stop()
        await poll_until(lambda: not bridge.status.is_on_bus)
        texts = [str(number) for number in range(150)]
        for text in texts:
            world.say(chat, text)
        own_bus.start_again("uvloop", {"plugins.disabled": ["bub"]})
        async with place.routing() as route:
            with anyio.fail_after(30):
                assert await route.wait_for(151) == ["one", *texts]
