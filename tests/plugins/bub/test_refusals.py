"""Requests and workers that cannot be: what exactly the requester hears."""

from __future__ import annotations

import ctypes
import os
import re
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import anyio
import pytest

from busd import Ack, CallRefused, Client
from busd_plugins.bub.chats import Chat
from busd_plugins.bub.forwarded import KEPT, NOT_ANSWERED
from tests.bus.access.guarded import new_token, open_guarded
from tests.conftest import DaemonWith
from tests.daemons import PATIENCE_SECONDS, Loop, open_daemon
from tests.plugins.bub.bridges import Bridge, light_workers, open_bridge

pytestmark = pytest.mark.anyio

WORKER = Chat("telegram", "1").agent_id


async def refusal(bridge: Bridge, chat: str, **content: str) -> str:
    """Return the error of a spawn request, the same in the ack and in the message."""
    bridge.heard.clear()
    ack = await bridge.spawn(chat, **content)
    result = await bridge.wait_for(lambda to, said: said["type"] == "spawn_result")
    assert not ack.success
    assert ack.read()["content"] == result["content"]
    assert (result["content"]["success"], result["content"]["error"]) == (False, ack.message)
    return ack.message


@pytest.mark.parametrize(
    ("chat", "content", "answer"),
    [
        ("", {}, "chat_id '' cannot be: it is empty"),
        ("a\0", {}, "chat_id 'a\\x00' cannot be: it has spaces, unprintable characters, * or ?"),
        ("a\n", {}, "chat_id 'a\\n' cannot be: it has spaces, unprintable characters, * or ?"),
        (
            "x" * 10_000,
            {},
            f"chat_id '{'x' * 40}…' cannot be: it has 10000 characters, and 245 are the most",
        ),
        (
            "1",
            {"channel_type": "smoke"},
            "unknown channel_type 'smoke': this bus has telegram, discord, hook, web, terminal,"
            " tkr, group, stage, agentiq"
            " (setting agents.channel_types)",
        ),
        ("1", {"channel": "agent"}, "channel agent cannot be: agent: is no address of a chat"),
    ],
    ids=["empty", "NUL", "newline", "10,000 characters", "channel type", "channel"],
)
async def test_a_chat_that_cannot_be_is_refused(
    daemon_with: DaemonWith, chat: str, content: dict[str, str], answer: str
) -> None:
    async with open_bridge(daemon_with(light_workers())) as bridge:
        before = (await bridge.call("agents.list"))["total"]
        assert await refusal(bridge, chat, **content) == answer
        assert (await bridge.call("agents.list"))["total"] == before


@pytest.mark.parametrize("chat", ["../../etc", "a:b", ".", "..", "%2e%2e", "a/b"])
async def test_a_chat_id_that_looks_like_a_path_gets_a_folder_among_the_others(
    loop: Loop, chat: str
) -> None:
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.route(chat, "hello")
            assert (await bridge.reply(chat)).endswith(": hello")
            workspace = Path((await bridge.agent())["workspace"])
            assert workspace.parent == daemon.folder / "state/workspaces"


async def test_a_request_without_its_members_is_told_which(daemon_with: DaemonWith) -> None:
    async with open_bridge(daemon_with(light_workers())) as bridge:
        payload = {"type": "spawn_request", "content": {"chat_id": [1]}}
        ack = (await bridge.client.send("system:spawn", payload)).acks[0]
        assert ack.message == "spawn_request: content.chat_id: Expected `int | str`, got `array`"


async def test_a_message_without_a_chat_is_refused(daemon_with: DaemonWith) -> None:
    async with open_bridge(daemon_with(light_workers())) as bridge:
        payload = {"type": "tg_message", "content": {"text": "hi", "channel": "telegram"}}
        ack = (await bridge.client.send("system:route", payload)).acks[0]
        assert ack.message == ("no chat_id, and telegram-bridge is not the address of a chat")


async def test_a_program_that_does_not_exist(loop: Loop) -> None:
    settings = light_workers(**{"workers.default.agent": ["/no/such/program"]})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            answer = await refusal(bridge, "1")
            assert answer.startswith("the worker cannot be started: ")
            assert "/no/such/program" in answer
            assert (await bridge.event("failed"))["reason"] == answer
            assert (await bridge.agent())["status"] == "failed"


async def test_a_program_that_exits_at_once_and_again(loop: Loop) -> None:
    settings = light_workers(
        **{"workers.default.environment.BEHAVE": "exit:3", "workers.default.restarts": 2}
    )
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            answer = await refusal(bridge, "1")
            assert answer.startswith("the worker failed: ")
            assert "exit code 3" in answer
            assert answer.endswith("; it said last: light agent: exit")
            assert len(bridge.events("exited")) == 3
            assert len(bridge.events("restarted")) == 2
            assert (await bridge.event("failed"))["last_lines"] == ["light agent: exit"]
            assert (await bridge.agent())["status"] == "failed"


async def test_a_program_that_ends_in_peace_before_it_connects(loop: Loop) -> None:
    settings = light_workers(**{"workers.default.environment.BEHAVE": "exit:0"})
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            answer = await refusal(bridge, "1")
            assert answer == "the worker ended before it connected: exit code 0"


async def test_a_program_that_never_connects(loop: Loop) -> None:
    settings = light_workers(
        **{"workers.default.environment.BEHAVE": "silent", "agents.ready_seconds": 0.5}
    )
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            assert await refusal(bridge, "1") == (
                f"the worker did not connect as {WORKER} within 0.5 s;"
                " it said last: light agent: silent"
            )
            agent = await bridge.agent()
            assert (agent["status"], agent["pid"]) == ("failed", None)


async def test_a_program_that_connects_under_another_name(loop: Loop) -> None:
    settings = light_workers(
        **{"workers.default.environment.BEHAVE": "stranger", "agents.ready_seconds": 1.0}
    )
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            assert await refusal(bridge, "1") == (
                f"the worker did not connect as {WORKER} within 1 s;"
                " agent:somebody-else joined meanwhile; it said last: light agent: stranger"
            )


async def test_the_senders_of_messages_that_waited_in_vain_hear_why(loop: Loop) -> None:
    settings = light_workers(
        **{"workers.default.environment.BEHAVE": "silent", "agents.ready_seconds": 0.5}
    )
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.route("1", "hello")
            assert ack.message.startswith(f"the worker did not connect as {WORKER} within 0.5 s")


async def test_a_start_that_takes_longer_than_a_request_may_is_said_in_time(loop: Loop) -> None:
    settings = light_workers(
        **{"workers.default.environment.BEHAVE": "silent", "plugins.handler_seconds": 4.0}
    )
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            assert await refusal(bridge, "1") == "the worker is still starting"
            ack = await bridge.route("1", "hello")
            assert (ack.success, ack.read()["content"]["message"]) == (True, KEPT)
            assert (await bridge.agent())["waiting"] == 1


async def test_who_writes_to_a_worker_that_is_behind_soon_hears_that_it_is_kept(loop: Loop) -> None:
    """A bridge sends those of a chat one by one, and confirms them in order for all chats."""
    with open_daemon(loop, light_workers()) as daemon:
        async with open_bridge(daemon) as bridge, anyio.create_task_group() as tasks:
            await bridge.route("1", "hello")
            tasks.start_soon(bridge.route, "1", "wait", "m1")
            with anyio.fail_after(PATIENCE_SECONDS):
                while not (await bridge.agent())["waiting"]:
                    await anyio.sleep(0.01)  # nobody reports that it is handed over
            begun = anyio.current_time()
            ack = await bridge.route("1", "wait", "m2")
            assert (ack.success, ack.read()["content"]["message"]) == (True, NOT_ANSWERED)
            assert anyio.current_time() - begun < 10
            tasks.cancel_scope.cancel()


async def test_more_messages_than_may_wait_are_refused_for_now(loop: Loop) -> None:
    settings = light_workers(
        **{
            "workers.default.environment.BEHAVE": "silent",
            "agents.ready_seconds": 1.0,
            "mail.box_count": 2,
        }
    )
    acks: list[Ack] = []

    async def say(bridge: Bridge, text: str) -> None:
        acks.append(await bridge.route("1", text))

    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(say, bridge, str(number))
            assert acks[0].message == f"mail for {WORKER} is not kept: 2 (mail.box_count)"
            assert (acks[0].should_retry, acks[0].retry_seconds) == (True, 5.0)
            assert [re.sub(" within.*", "", ack.message) for ack in acks[1:]] == (
                [f"the worker did not connect as {WORKER}"] * 2
            )


async def test_more_workers_than_there_may_be_are_refused(loop: Loop) -> None:
    with open_daemon(loop, light_workers(**{"agents.max_workers": 1})) as daemon:
        async with open_bridge(daemon) as bridge:
            await bridge.spawn("1")
            assert await refusal(bridge, "2") == (
                "no room for another worker: 1 run or start (setting agents.max_workers)"
            )
            assert [agent["chatId"] for agent in (await bridge.call("agents.list"))["agents"]] == [
                "1"
            ]


async def test_a_peer_sends_only_its_types_where_the_policy_is_strict(loop: Loop) -> None:
    grants = [{"name": "guests", "token": "guest", "client_ids": ["agent:*"]}]
    with open_guarded(loop, grants, light_workers()) as daemon:
        address, token = f"tcp://127.0.0.1:{daemon.port}", new_token(daemon, "guest")
        async with Client("agent:guest", address=address, token=token) as guest:
            asked = {"chat_id": "1", "channel": "telegram", "channel_type": "telegram"}
            with pytest.raises(CallRefused) as refused:
                await guest.send("system:spawn", {"type": "spawn_request", "content": asked})
    assert refused.value.code == -32602
    assert refused.value.message == (
        "an agent like agent:guest may not send spawn_request,"
        " only agent_event, general_response, tg_reply"
    )
    assert refused.value.data["rule"] == "type.bub"  # type: ignore[index]  # decoded JSON


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a disk of its own")
async def test_a_full_state_disk_is_said_and_leaves_nothing_half_done(loop: Loop) -> None:
    folder = Path(mkdtemp(prefix="busd-test-"))
    (folder / "state").mkdir(mode=0o700)
    with open_daemon(
        loop, light_workers(), folder=folder, before=partial(mount_small_disk, folder / "state")
    ) as daemon:
        state = Path(f"/proc/{daemon.process.pid}/root{folder}/state")
        async with open_bridge(daemon) as bridge:
            assert (await bridge.route("before", "one")).success
            fill(state / "ballast")
            assert await refusal(bridge, "1") == (
                "the workspace cannot be made: No space left on device"
            )
            assert [agent["chatId"] for agent in (await bridge.call("agents.list"))["agents"]] == [
                "before"
            ]
            assert names_in(state / "workspaces") == ["telegram-before"]
            # The worker is here, so it gets what the disk cannot keep, if the bus knows that no
            # mail waits before it: else, and that is a matter of moments, the sender is told.
            two = await bridge.route("before", "two")
            if not two.success:
                assert two.message == "mail cannot be written; the log of the bus has the details"
                assert (two.should_retry, two.retry_seconds) == (True, 5.0)
            remove(state / "ballast")
            assert (await bridge.route("before", "three")).success
            assert (await bridge.spawn("1")).success
            await bridge.wait_for(lambda to, said: to == "tg:before" and "three" in str(said))
            answered = [text.split(": ")[1] for text in bridge.replies("before")]
            answered = [text for text in answered if text != "one"]
            assert answered == (["two", "three"] if two.success else ["three"])
        assert daemon.stop() == 0
        # The mail and the bus's own log of activity may have found the disk full, too, and say so.
        told = ('"journal.failed"', '"mail.failed"')
        assert all(any(event in line for event in told) for line in daemon.faults()), daemon.log()
        daemon.is_blamed = True


def mount_small_disk(place: Path) -> None:
    """Give this process a small disk of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, private = 0x20000, 0x40000 | 0x4000
    assert libc.unshare(new_mounts) == 0, os.strerror(ctypes.get_errno())
    assert libc.mount(b"none", b"/", None, private, None) == 0, os.strerror(ctypes.get_errno())
    size = b"size=4m,mode=0700"
    assert libc.mount(b"tmpfs", bytes(place), b"tmpfs", 0, size) == 0, ctypes.get_errno()


def fill(file: Path) -> None:
    """Leave no room on the disk that a file is on."""
    with file.open("wb", buffering=0) as ballast:
        for size in (65_536, 1):
            try:
                while ballast.write(b"x" * size):
                    pass
            except OSError:
                pass


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def remove(file: Path) -> None:
    file.unlink()
