"""A start that nobody waits for any more leaves nothing behind."""

from __future__ import annotations

import anyio
import pytest

from busd.keeper.launch import Launch
from busd.supervise.worker import Spawner, SpawnFailed
from tests.supervise.conftest import MakeLaunch, MakeSpawner
from tests.supervise.processes import Told, is_alive, patience, wait_for_end
from tests.supervise.test_life import STAYS

pytestmark = pytest.mark.anyio


async def is_started(spawner: Spawner, wanted: Launch) -> bool:
    try:
        await spawner.start(wanted)
    except SpawnFailed:
        return False
    return True


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.005, 0.01, 0.02, 0.05])
async def test_a_start_that_is_cancelled_leaves_no_worker(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, seconds: float
) -> None:
    async with make_spawner() as spawner:
        await spawner.start(launch(STAYS, "agent:first"))  # so that there is a keeper
        first = await told.next_pid()
        with anyio.move_on_after(seconds) as patient:
            await spawner.start(launch(STAYS))
        if patient.cancelled_caught:
            for pid in told.marked():
                if pid != first:
                    await wait_for_end(pid)
            with patience():
                while not await is_started(spawner, launch(STAYS)):
                    await anyio.sleep(0.01)  # the one before is just ending
        assert is_alive(first)
