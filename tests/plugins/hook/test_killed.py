"""The gateway, the bus and the agent are killed: each message is answered once, or flagged."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import anyio
import pytest

from tests.daemons import PATIENCE_SECONDS
from tests.gateway.e2e.place import Victim
from tests.plugins.hook.kills import kill, post, rehearse
from tests.plugins.hook.listener import open_listener
from tests.plugins.hook.place import Hooks, open_hooks

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    with open_hooks(
        tmp_path_factory.mktemp("hooks"), allow_private_callbacks=True, wait_seconds=20.0
    ) as opened:
        yield opened


@pytest.mark.parametrize("victim", ["gateway", "bus"])
async def test_who_waits_is_answered_once_also_if_it_is_killed(
    hooks: Hooks, victim: Victim
) -> None:
    name, key = f"wait{uuid4().hex[:6]}", uuid4().hex
    body = {"chat_id": name, "text": f"stages {name}"}
    found: list[dict[str, object]] = []

    async def insist() -> None:
        found.append((await hooks.insist(body, key)).json())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(insist)
        await hooks.place.reached(f"{name}.midway")
        await kill(hooks, victim)
        hooks.place.let_go(f"{name}.midway")
    [outcome] = found
    if outcome["state"] == "asking":
        hooks.place.let_go(f"{name}.ending")
        prompt_id = outcome["replies"][-1]["prompt_id"]  # type: ignore[index]  # JSON
        answer = {"chat_id": name, "text": "rye", "prompt_id": prompt_id}
        outcome = (await hooks.insist(answer, uuid4().hex)).json()
        assert outcome["text"] == f"{name}: rye"
    assert outcome["state"] == "answered"
    # A bus that was killed has killed its agent, too, which says that it could not finish.
    assert len([each for each in outcome["replies"] if "prompt_id" not in each]) == 1  # type: ignore[attr-defined]  # JSON


@pytest.mark.parametrize("victim", ["gateway", "bus"])
async def test_a_callback_under_way_is_repeated_with_a_flag(hooks: Hooks, victim: Victim) -> None:
    async with open_listener() as listener:
        listener.faults = ["hang"]
        await post(hooks, listener, "hello", uuid4().hex, PATIENCE_SECONDS)
        await listener.until(lambda: listener.got)
        await kill(hooks, victim)
        listener.release.set()
        await listener.until(lambda: listener.accepted)
        assert [each.json["is_repeat"] for each in listener.got] == [False, True]
        assert len({each.headers["webhook-id"] for each in listener.got}) == 1


async def test_many_kills_lose_no_answer_and_double_none_without_a_flag(hooks: Hooks) -> None:
    killed, _ = await rehearse(
        hooks, chats=3, messages=24, kills=4, patience_seconds=4 * PATIENCE_SECONDS
    )
    assert killed == {"gateway": 2, "worker": 1, "bus": 1}
