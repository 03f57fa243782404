"""A bridge that is killed: nothing is lost, and nothing is posted twice without a flag."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.bridge.killable import posted
from tests.bridge.toy import Place, Posted, ToyAgent, poll_until
from tests.daemons import PATIENCE_SECONDS, Daemon

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parent.parent.parent


@asynccontextmanager
async def process(place: Place, agent: ToyAgent, folder: Path, point: str) -> AsyncIterator[Reach]:
    """Run a bridge that hangs at a point; at the end it is killed."""
    words = [place.address, place.prefix, str(folder), point]
    command = [sys.executable, "-m", "tests.bridge.killable", *words]
    with subprocess.Popen(  # noqa: ASYNC220 - it is only started
        command, cwd=ROOT, stdout=subprocess.PIPE
    ) as running:
        try:
            await poll_until_subscribed(agent, place.prefix)
            yield Reach(running)
        finally:
            running.kill()
    await poll_until_gone(agent, place.prefix)


class Reach:
    """Waits until a bridge has reached its point."""

    def __init__(self, running: subprocess.Popen[bytes]) -> None:
        self._running = running

    async def wait(self) -> None:
        assert self._running.stdout is not None
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await to_thread.run_sync(self._running.stdout.readline) == b"here\n"


async def is_subscribed(agent: ToyAgent, prefix: str) -> bool:
    found = (await agent.bus.status())["connections"]
    return any(f"{prefix}:*" in each["subscriptions"] for each in found)


async def poll_until_subscribed(agent: ToyAgent, prefix: str) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while not await is_subscribed(agent, prefix):
            await anyio.sleep(0.01)


async def poll_until_gone(agent: ToyAgent, prefix: str) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while await is_subscribed(agent, prefix):
            await anyio.sleep(0.01)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_many_kills_lose_nothing_and_double_nothing_without_a_flag(
    place: Place, tmp_path: Path
) -> None:
    count, kills = 120, 6

    async def send(agent: ToyAgent, chat_id: str) -> None:
        for number in range(count // 3):
            await agent.keep(str(number), chat_id)

    async with place.agent() as agent, anyio.create_task_group() as tasks:
        for number in range(kills):
            async with process(place, agent, tmp_path, "never"):
                if not number:
                    for chat_id in ("1", "2", "3"):
                        tasks.start_soon(send, agent, chat_id)
                goal = (number + 1) * count // (kills + 1)
                await poll_until(lambda goal=goal: len(posted(tmp_path)) >= goal)  # type: ignore[misc]  # mypy cannot infer the lambda
        async with process(place, agent, tmp_path, "never"):
            await poll_until(lambda: len(_firsts(tmp_path)) == count)
    again = posted(tmp_path)
    for first in _firsts(tmp_path):
        again.remove(first)
    assert all(each.is_repeat for each in again), again
    for chat_id in ("1", "2", "3"):
        texts = [each.text for each in _firsts(tmp_path) if each.chat_id == chat_id]
        assert texts == [str(number) for number in range(count // 3)]


def _firsts(folder: Path) -> list[Posted]:
    """Return the first post of each text in each chat."""
    found: dict[tuple[str, str], Posted] = {}
    for each in posted(folder):
        found.setdefault((each.chat_id, each.text), each)
    return list(found.values())


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_part_without_outcome_is_posted_again_with_a_flag(
    place: Place, tmp_path: Path, point: str
) -> None:
    async with place.agent() as agent, anyio.create_task_group() as tasks:
        async with process(place, agent, tmp_path, point) as reached:
            tasks.start_soon(agent.keep, "one")
            await reached.wait()
            tasks.start_soon(agent.keep, "two")
        async with process(place, agent, tmp_path, "never"):
            expected = [("one", False)] if point == "after" else []
            expected += [("one", True), ("two", False)]
            await poll_until(lambda: len(posted(tmp_path)) >= len(expected))
            await agent.reply("last")
    found = [(each.text, each.is_repeat) for each in posted(tmp_path)]
    assert found == [*expected, ("last", False)]


async def test_a_draft_is_edited_after_a_kill(place: Place, tmp_path: Path) -> None:
    async with place.agent() as agent:
        async with process(place, agent, tmp_path, "draft") as reached:
            await agent.tell("turn.delta", turn="q1", text="to be")
            await agent.tell("turn.delta", turn="q1", text=" or")
            with anyio.fail_after(PATIENCE_SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(tell_forever, agent)
                    await reached.wait()
                    tasks.cancel_scope.cancel()
        async with process(place, agent, tmp_path, "never"):
            await agent.reply("to be or not", to="q1")
    assert [(each.text, each.draft) for each in posted(tmp_path)] == [("to be or not", "draft1")]


async def tell_forever(agent: ToyAgent) -> None:
    """Go on until the draft is shown for the second time."""
    while True:
        await agent.tell("turn.delta", turn="q1", text=".")


async def test_replies_arrive_once_also_if_the_bus_is_killed(place: Place, daemon: Daemon) -> None:
    async with place.serving() as bridge, place.agent() as agent:
        place.toy.gates["1"] = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(agent.keep, str(number))
                await poll_until(lambda number=number: bridge.status.queue > number)  # type: ignore[misc]  # mypy cannot infer the lambda
            daemon.process.kill()
            daemon.wait()
            await poll_until(lambda: not bridge.status.is_on_bus)
            daemon.start_again("uvloop", {"plugins.disabled": ["bub"]})
            await poll_until(lambda: bridge.status.is_on_bus)
            place.toy.gates["1"].set()
        assert [ack.success for ack in (await agent.reply("last")).acks] == [True]
    assert place.toy.texts() == [*map(str, range(5)), "last"]
    assert not any(each.is_repeat for each in place.toy.posted)
