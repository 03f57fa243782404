"""The bootstrap of a chat, end to end: real bus, real workers."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from busd import Client
from busd_plugins.bub.chats import Chat
from tests.daemons import PATIENCE_SECONDS, Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge
from tests.wire_peers import connect

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id
CHATS = 200


async def test_a_bare_message_starts_an_agent_and_is_answered_by_it(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.route("1", "hello")
            assert (ack.success, ack.read()) == (True, {"by": WORKER})
            assert await bridge.reply("1") == f"{WORKER}: hello"


@pytest.mark.parametrize("address", ["system:spawn", "agent:system"])
async def test_a_spawn_request_is_answered_by_ack_and_message(loop: Loop, address: str) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.spawn("1", address)
            content = ack.read(dict[str, Any])["content"]
            assert (content["success"], content["client_id"]) == (True, WORKER)
            assert (content["status"], content["chat_id"]) == ("running", "1")
            result = await bridge.wait_for(lambda to, said: said["type"] == "spawn_result")
            assert (result["from"], result["content"]) == ("agent:system", content)
            await bridge.wait_for(lambda *_: len(assigned(bridge)) == 2)
            content = {"chat_id": "1", "agent_id": WORKER}
            assert assigned(bridge) == {"events:tg:1": content, "system:events": content}
            for event in ("spawned", "ready"):
                data = await bridge.event(event)
                assert data == {"agent_id": WORKER, "chat_id": "1", "channel": "telegram"}
            assert (await bridge.say(WORKER, "1", "hello")).success
            assert await bridge.reply("1") == f"{WORKER}: hello"


def assigned(bridge: Bridge) -> dict[str, Any]:
    """Return where `route_assigned` was sent, and what it said."""
    return {to: said["content"] for to, said in bridge.heard if said["type"] == "route_assigned"}


async def test_a_chats_own_address_gets_nothing_but_results_and_replies(loop: Loop) -> None:
    """Existing bridges post whatever comes there, and fail on anything else."""
    command = ["sh", "-c", "read line; echo $line; test $line != fail"]
    workers = {"workers.default.command": command, "workers.default.stream": True}
    with open_daemon(loop, {**workers, "workers.default.spawner": "subprocess"}) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            assert await bridge.reply("1") == "hello"
            await bridge.route("1", "fail")
            assert (await bridge.reply("1", 2)).startswith("Sorry, that failed: ")
            at_chat = [said["type"] for to, said in bridge.heard if to == "tg:1"]
            events = [said["type"] for to, said in bridge.heard if to == "events:tg:1"]
            assert at_chat == ["tg_reply", "tg_reply"]
            assert {"route_assigned", "agent_event"} == set(events)


@pytest.mark.parametrize("named", [{}, {"from": "telegram-bridge"}], ids=["nobody", "bridge"])
async def test_words_of_a_chat_that_a_bridge_names_in_the_content_are_the_chats_own(
    loop: Loop, named: dict[str, str]
) -> None:
    workers = {"workers.default.command": ["cat"], "workers.default.spawner": "subprocess"}
    with open_daemon(loop, workers) as daemon:
        async with open_bridge(daemon) as bridge:
            content = {"text": "hello", "chat_id": "9", "channel": "telegram"}
            payload = {"type": "tg_message", **named, "content": content}
            assert (await bridge.client.send("system:route", payload)).acks[0].success
            assert await bridge.reply("9") == "hello"


async def test_the_result_goes_to_the_sender_if_the_payload_names_nobody(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            asked = {"chat_id": "1", "channel": "telegram", "channel_type": "telegram"}
            payload = {"type": "spawn_request", "content": asked}
            await bridge.client.send("system:spawn", payload)
            await bridge.wait_for(
                lambda to, said: to == "telegram-bridge" and said["type"] == "spawn_result"
            )


async def test_a_worker_is_told_who_it_is_and_where_its_workspace_is(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            folder = (daemon.folder / "state/workspaces/telegram-1").resolve()
            expected = {
                "BUSD_ADDRESS": f"unix:{daemon.path}",
                "BUSD_CLIENT_ID": WORKER,
                "BUSD_TALKTO": "tg:1",
                "BUSD_REPLY_TYPE": "telegram",
                "BUSD_WORKSPACE": str(folder),
            }
            for number, (name, value) in enumerate(expected.items(), 1):
                await bridge.route("1", f"env {name}")
                assert await bridge.reply("1", number) == value
            assert json.loads((folder / "data/configured").read_text()) == {"talkto": "tg:1"}
            assert json.loads((folder / "config.json").read_text())["client_id"] == WORKER


async def test_a_thousand_requests_for_one_chat_start_one_worker(loop: Loop) -> None:
    results: list[object] = []

    async def ask(bridge: Bridge) -> None:
        results.append((await bridge.spawn("1")).read()["content"]["client_id"])

    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            async with anyio.create_task_group() as tasks:
                for _ in range(1_000):
                    tasks.start_soon(ask, bridge)
            assert results == [WORKER] * 1_000
            assert len(bridge.events("spawned")) == 1


async def test_two_hundred_chats_at_once_each_get_their_own_worker_and_answer(
    loop: Loop,
) -> None:
    async def chat(bridge: Bridge, name: str) -> None:
        ack = await bridge.route(name, f"I am {name}")
        assert ack.success, ack.message

    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            async with anyio.create_task_group() as tasks:
                for number in range(CHATS):
                    tasks.start_soon(chat, bridge, str(number))
            for number in range(CHATS):
                worker = Chat("telegram", str(number)).agent_id
                assert await bridge.reply(str(number)) == f"{worker}: I am {number}"
            agents = (await bridge.call("agents.list", status="running"))["agents"]
            assert len({agent["pid"] for agent in agents}) == CHATS
            assert all(len(bridge.replies(str(number))) == 1 for number in range(CHATS))


async def test_messages_for_a_worker_that_starts_wait_in_order(loop: Loop) -> None:
    """By both ways at once: through system:route, and to the address of the agent itself."""
    acked: list[bool] = []

    async def say(bridge: Bridge, to: str, text: str) -> None:
        acked.append((await bridge.say(to, "1", text)).success)

    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            await bridge.call("agents.stop", clientId=WORKER)
            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    to = "system:route" if number % 3 else WORKER
                    tasks.start_soon(say, bridge, to, str(number))
            assert acked == [True] * 100
            await bridge.reply("1", 100)
            assert bridge.replies("1") == [f"{WORKER}: {number}" for number in range(100)]


async def test_the_two_ways_to_an_agent_keep_one_order(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            peer = connect(daemon, "unix")
            peer.initialize("tg:1")
            said = [("system:route" if number % 2 else WORKER, number) for number in range(200)]
            frames = [frame_of(to, str(number)) for to, number in said]
            peer.sock.sendall(b"".join(frames))  # at once
            await bridge.reply("1", 200)
            peer.close()
            assert bridge.replies("1") == [f"{WORKER}: {number}" for number in range(200)]


def frame_of(to: str, text: str) -> bytes:
    payload = {"type": "tg_message", "content": {"text": text}}
    params = {"to": to, "payload": payload}
    return (
        json.dumps({"jsonrpc": "2.0", "method": "sendMessage", "params": params}).encode() + b"\n"
    )


async def test_an_address_that_cannot_be_is_refused_as_talkto(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            payload = {"type": "configure", "content": {"talkto": "no where"}}
            receipt = await bridge.client.send("agent:system", payload, sender="tg:1")
            assert receipt.acks[0].message == (
                "'no where' cannot be an address: it has spaces, unprintable characters, * or ?"
            )


async def test_configure_through_the_system_agent_is_for_good(loop: Loop) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            wanted = {"talkto": "tg:elsewhere", "settings": {"mood": "good"}}
            payload = {"type": "configure", "content": wanted}
            receipt = await bridge.client.send("agent:system", payload, sender="tg:1")
            assert receipt.acks[0].success
            await bridge.route("1", "hello")
            assert await bridge.reply("elsewhere") == f"{WORKER}: hello"
            await bridge.call("agents.restart", clientId=WORKER)
            await bridge.route("1", "hello again")
            assert await bridge.reply("elsewhere", 2) == f"{WORKER}: hello again"
            configured = daemon.folder / "state/workspaces/telegram-1/data/configured"
            assert json.loads(configured.read_text()) == wanted


async def test_the_built_in_echo_answers_where_no_program_is_named(loop: Loop) -> None:
    settings = {"workers.default.spawner": "subprocess"}
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route("1", "hello")
            assert "hello" in await bridge.reply("1")


async def test_others_are_served_while_a_worker_starts(loop: Loop) -> None:
    settings = light_workers(
        **{
            "workers.default.environment.BEHAVE": "silent",
            "agents.ready_seconds": 2 * PATIENCE_SECONDS,
            "drain_seconds": 0.1,
        }
    )
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.spawn, "1")
            await bridge.event("spawned")
            async with Client("agent:other", address=f"unix:{daemon.path}") as other:
                with anyio.fail_after(PATIENCE_SECONDS):
                    await other.ping()
            assert not bridge.events("failed")
            tasks.cancel_scope.cancel()
