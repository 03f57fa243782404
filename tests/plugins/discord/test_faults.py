"""What Discord may answer: the user, the operator and the log learn what is wrong."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from msgspec import structs

from busd import Bridge, ConfigError
from busd_plugins.discord.serving import serve_discord
from tests.bridge.toy import ToyAgent, poll_until, refused
from tests.plugins.discord.place import QUICK, Place, Route
from tests.plugins.discord.world import TOKEN, ApiError, Fault, World

pytestmark = pytest.mark.anyio
POST = r"/messages$"


async def post(agent: ToyAgent, chat_id: int, text: str = "hi") -> None:
    receipt = await agent.reply(text, str(chat_id))
    assert receipt.acks[0].success, receipt


async def test_a_wrong_token_is_reported_and_a_new_one_is_read(
    place: Place, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    place.token_file.write_text("a-wrong-token")
    bridge = Bridge("b", place.prefix, state=place.folder / "b", address=place.address)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_discord, bridge, place.table(), QUICK)
        await poll_until(lambda: bridge.status.state == "unauthorized")
        assert bridge.status.detail == "Discord refuses the token"
        place.token_file.write_text(TOKEN)
        await poll_until(lambda: bridge.status.state == "connected")
        tasks.cancel_scope.cancel()
    assert "a-wrong-token" not in caplog.text
    assert TOKEN not in caplog.text


async def test_a_token_that_is_revoked_is_reported_and_no_reply_is_lost(
    place: Place, world: World, agent: ToyAgent, caplog: pytest.LogCaptureFixture
) -> None:
    chat = world.direct()
    async with place.serving() as bridge:
        world.token = "another"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, agent, chat.id)
            await poll_until(lambda: bridge.status.state == "unauthorized")
            await world.wait_until(lambda: not place.server.is_joined)
            world.token = TOKEN
        assert bridge.status.state == "connected"
    assert world.said(chat) == ["hi"]
    assert TOKEN not in caplog.text


LOGIN_FAULTS: dict[str, dict[str, Any]] = {
    "503": {"status": 503},
    "no answer": {"status": 0, "times": 3},
    "half an answer": {"status": 200, "is_half": True},
    "a page of a proxy": {"status": 200, "body": "<html>log in first</html>"},
    "403 of a proxy": {"status": 403, "body": "<html>no</html>"},
}


@pytest.mark.parametrize("path", ["/users/@me$", "/gateway/bot$"])
@pytest.mark.parametrize("fault", LOGIN_FAULTS.values(), ids=LOGIN_FAULTS.keys())
async def test_a_login_that_fails_is_tried_again(
    place: Place,
    world: World,
    caplog: pytest.LogCaptureFixture,
    path: str,
    fault: dict[str, Any],
) -> None:
    world.faults.append(Fault("GET", path, **fault))
    async with place.serving() as bridge:
        assert bridge.status.state == "connected"
    assert not world.faults
    assert "discord-bridge is waiting" in caplog.text.replace(bridge.name, "discord-bridge")
    assert "Traceback" not in caplog.text


async def test_a_second_process_with_the_same_token_is_refused(place: Place) -> None:
    async with place.serving():
        second = Bridge("second", "discord2", state=place.folder / "2", address=place.address)
        with pytest.raises(ConfigError, match=r"process \d+ uses this DISCORD_TOKEN already"):
            await serve_discord(second, place.table())


async def test_an_intent_that_is_not_enabled_is_reported(place: Place, world: World) -> None:
    world.intents = 0
    bridge = Bridge("b", place.prefix, state=place.folder / "b", address=place.address)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_discord, bridge, place.table(groups="all"), QUICK)
        await poll_until(lambda: bridge.status.state == "failed")
        assert "Message Content Intent" in bridge.status.detail
        tasks.cancel_scope.cancel()


async def test_a_server_with_no_sessions_left_is_waited_for(place: Place, world: World) -> None:
    world.sessions_left = 0
    bridge = Bridge("b", place.prefix, state=place.folder / "b", address=place.address)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_discord, bridge, place.table(), QUICK)
        await poll_until(lambda: bridge.status.detail == "Discord allows no more sessions for now")
        assert place.server.identified == 0
        world.sessions_left = 5
        await poll_until(lambda: bridge.status.state == "connected")
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("is_global", [True, False])
async def test_a_rate_limit_is_obeyed(
    place: Place, world: World, agent: ToyAgent, is_global: bool
) -> None:
    chat = world.direct()
    body = {"message": "You are being rate limited.", "retry_after": 0.6, "global": is_global}
    async with place.serving() as bridge:
        world.faults.append(Fault("POST", POST, 429, body, {"Via": "1.1 google"}))
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, agent, chat.id)
            await world.wait_until(lambda: not world.faults)
            await poll_until(lambda: bool(bridge.status.paused_until) is is_global)
        assert anyio.current_time() - began >= 0.6
        assert bridge.status.repeated == 0
    assert world.said(chat) == ["hi"]


async def test_a_ban_of_the_address_pauses_everything(
    place: Place, world: World, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving() as bridge:
        headers = {"Retry-After": "900", "Content-Type": "text/html"}
        world.faults.append(Fault("POST", POST, 429, "<html>banned</html>", headers))
        reason, should_retry = refused(await agent.reply("hi", str(chat.id)))
        assert (reason, should_retry) == ("the other system asks to wait 900 seconds", True)
        assert bridge.status.paused_until
    assert world.said(chat) == []


FAULTS: dict[str, dict[str, Any]] = {
    "500": {"status": 500},
    "502 of a proxy": {"status": 502, "body": "<html>bad gateway</html>"},
    "503": {"status": 503},
    "500 after it was posted": {"status": 500, "is_after": True},
    "no answer": {"status": 0},
    "no answer after it was posted": {"status": 0, "is_after": True},
    "half an answer after it was posted": {"status": 200, "is_half": True, "is_after": True},
    "an answer that is none": {"status": 200, "body": "<html>log in first</html>"},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("is_nonce_known", [True, False])
async def test_a_reply_is_posted_once_whatever_goes_wrong(
    place: Place, world: World, agent: ToyAgent, fault: dict[str, Any], is_nonce_known: bool
) -> None:
    chat = world.direct()
    async with place.serving() as bridge:
        world.faults.append(Fault("POST", POST, **fault))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, agent, chat.id)
            await world.wait_until(lambda: not world.faults)
            if not is_nonce_known:
                world.forget_nonces()
        assert bridge.status.repeated == 1
    assert world.said(chat) == ["hi"]


async def test_where_the_history_cannot_be_read_the_nonce_keeps_a_reply_from_being_doubled(
    place: Place, world: World, agent: ToyAgent
) -> None:
    chat = world.direct()
    refusal = {"code": 50001, "message": "Missing Access"}
    async with place.serving() as bridge:
        world.faults.append(Fault("GET", POST, 403, refusal, times=9))
        world.faults.append(Fault("POST", POST, 500, is_after=True))
        await post(agent, chat.id)
        assert bridge.status.repeated == 1
    assert world.said(chat) == ["hi"]


async def test_a_post_that_takes_too_long_is_repeated(
    place: Place, world: World, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving(structs.replace(QUICK, post_seconds=3.0)) as bridge:
        world.faults.append(Fault("POST", POST, hangs=True))
        await post(agent, chat.id)
        assert bridge.status.repeated == 1
    assert world.said(chat) == ["hi"]


REFUSALS = {
    "the user does not accept messages of the bot": ApiError(403, 50007, "Cannot send messages"),
    "the bot may not see the channel": ApiError(403, 50001, "Missing Access"),
    "the channel is gone": ApiError(404, 10003, "Unknown Channel"),
    "the bot may not write in the channel": ApiError(403, 50013, "Missing Permissions"),
    "Discord refuses it: 400 odd": ApiError(400, 50035, "odd"),
}


@pytest.mark.parametrize("reason", REFUSALS)
async def test_a_chat_that_takes_nothing_is_a_refusal_for_good(
    place: Place, world: World, agent: ToyAgent, reason: str
) -> None:
    chat, other = world.direct(), world.direct(2)
    chat.refusal = REFUSALS[reason]
    async with place.serving() as bridge:
        assert refused(await agent.reply("hi", str(chat.id))) == (reason, False)
        await post(agent, other.id)
        assert bridge.status.refused == 1
    assert world.said(other) == ["hi"]


async def test_an_address_that_is_no_channel_is_refused(
    place: Place, world: World, agent: ToyAgent
) -> None:
    async with place.serving():
        said = refused(await agent.reply("hi", "general"))
    assert said == ("'general' is no channel of Discord", False)


async def test_an_unknown_event_is_ignored(
    place: Place, world: World, route: Route, caplog: pytest.LogCaptureFixture
) -> None:
    chat = world.direct()
    async with place.serving():
        world.dispatch("MESSAGE_FROM_THE_FUTURE", {"author": {"id": "1"}, "mentions": []})
        world.say(chat, "a pin", type=6)
        world.say(chat, "a type from the future", type=250)
        world.say(chat, "hello")
        assert await route.wait_for(1) == ["hello"]
    assert "Traceback" not in caplog.text
