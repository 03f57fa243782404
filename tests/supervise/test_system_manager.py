"""Workers as units of the system's manager, for a bus that root runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import msgspec
import pytest
from anyio import to_thread

from tests.supervise.conftest import MakeLaunch
from tests.supervise.processes import Told, wait_for_end
from tests.supervise.test_life import STAYS
from tests.supervise.test_process_trees import STAYS_WITH_TREE
from tests.systemd.managers import (
    ROOT,
    NoManager,
    SystemManager,
    open_journal,
    open_system_manager,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def system_manager() -> Iterator[SystemManager]:
    with ExitStack() as stack:
        try:
            manager = stack.enter_context(open_system_manager())
        except NoManager as reason:
            pytest.skip(str(reason))
        yield manager


@contextmanager
def started_inside(manager: SystemManager, wanted: Mapping[str, object]) -> Iterator[IO[bytes]]:
    """Start a daemon in the manager's namespaces, as root's bus is; it is killed in the end."""
    command = manager.command(sys.executable, "-m", "tests.supervise.daemon", json.dumps(wanted))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as entering:
        assert entering.stdout is not None
        try:
            yield entering.stdout
        finally:
            children = Path(f"/proc/{entering.pid}/task/{entering.pid}/children").read_text()
            os.kill(int(children.split()[0]), signal.SIGKILL)


async def test_workers_of_the_systems_manager_end_when_the_daemon_is_killed(
    system_manager: SystemManager, launch: MakeLaunch, told: Told, state: Path
) -> None:
    wanted = {
        "kind": "systemd",
        "state": str(state),
        "settings": {"stop_seconds": 0.5},
        "manager": {"flavour": "system"},
        "backend": "trio",
        "launches": [msgspec.to_builtins(launch(STAYS_WITH_TREE, stop_seconds=0.5), enc_hook=str)],
    }
    with started_inside(system_manager, wanted) as daemon:
        unit = json.loads(await to_thread.run_sync(daemon.readline))["unit"]
        for _ in range(3):
            await told.next_pid()
        tree = told.marked()
        assert system_manager.show(unit, "ActiveState") == "active"
    assert tree
    for pid in tree:
        await wait_for_end(pid)
    assert not told.left_behind()


async def test_the_systems_journal_shows_what_a_worker_prints(
    system_manager: SystemManager, launch: MakeLaunch, told: Told, state: Path
) -> None:
    wanted = {
        "kind": "journal",
        "state": str(state),
        "settings": {},
        "manager": {"flavour": "system"},
        "backend": "asyncio",
        "launches": [msgspec.to_builtins(launch(f"echo words; {STAYS}"), enc_hook=str)],
    }
    with ExitStack() as stack:
        try:
            stack.enter_context(open_journal(system_manager))
        except NoManager as reason:
            pytest.skip(str(reason))
        daemon = stack.enter_context(started_inside(system_manager, wanted))
        started = json.loads(await to_thread.run_sync(daemon.readline))
        pid = await told.next_pid()  # as its own namespace counts
        assert started["log"] == f"journal, unit {started['unit']}"
        synced = await to_thread.run_sync(system_manager.run, "journalctl", "--sync")
        assert synced.returncode == 0, synced.stderr
        words = ("journalctl", "--output=json", f"--unit={started['unit']}")
        done = await to_thread.run_sync(system_manager.run, *words)
        (line,) = (json.loads(text) for text in done.stdout.splitlines())
        assert (line["MESSAGE"], line["_PID"]) == ("words", str(pid))
        assert line["_SYSTEMD_CGROUP"].endswith(f"/busd-agents.slice/{started['unit']}")
    assert not told.left_behind()
