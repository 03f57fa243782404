"""kill -9 of the bus and the keeper of its workers: nothing of a worker's command is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import Daemon, Loop, open_daemon
from tests.keeper.keepers import keepers
from tests.plugins.bub.bridges import open_bridge
from tests.supervise.processes import Told, is_alive, wait_for_end
from tests.supervise.test_life import STAYS
from tests.supervise.test_process_trees import RUNS_AWAY

pytestmark = pytest.mark.anyio


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    told = Told(tmp_path)
    yield told
    for pid in told.marked():
        os.kill(pid, signal.SIGKILL)
    told.close()


@pytest.mark.parametrize("persistent", ["no", "lines"])
async def test_commands_of_workers_are_gone_when_the_bus_and_its_keeper_were_killed(
    loop: Loop, told: Told, persistent: str
) -> None:
    settings: dict[str, object] = {
        "workers.default.command": ["sh", "-c", f"{RUNS_AWAY} {STAYS}"],
        "workers.default.persistent": persistent,
        "workers.default.spawner": "subprocess",
        "agents.stop_seconds": 1.0,
    }
    for name, value in told.environment.items():
        settings[f"workers.default.environment.{name}"] = value
    with open_daemon(loop, settings) as daemon:
        async with open_bridge(daemon) as bridge:
            assert (await bridge.route("1", "go")).success
            tree = [await told.next_pid() for _ in range(3)]
            worker = (await bridge.agent())["pid"]
            assert all(map(is_alive, [worker, *tree]))
            kill_both(daemon)
        for pid in [worker, *tree]:
            await wait_for_end(pid)
        assert not told.left_behind()
        settings["workers.default.command"] = ["cat"]
        daemon.wait()
        daemon.start_again(loop, settings)


def kill_both(daemon: Daemon) -> None:
    """Kill the bus and the keeper at once."""
    pids = [daemon.process.pid, *keepers(daemon.folder / "state")]
    assert len(pids) == 2
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # neither shall see the other's end
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
