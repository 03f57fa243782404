"""A service manager that is executed again, or ends while workers run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from anyio import to_thread

from busd.supervise.service_manager import ServiceManager
from busd.supervise.systemd import SystemdSpawner
from busd.supervise.worker import Report, SupervisorSettings
from tests.supervise.conftest import MakeLaunch
from tests.supervise.processes import Told, is_alive, patience, wait_for_end
from tests.supervise.test_life import STAYS, all_reports, next_report
from tests.systemd.managers import NoManager, UserManager, open_user_manager

pytestmark = pytest.mark.anyio


@pytest.fixture
def manager() -> Iterator[UserManager]:
    """A manager of the test's own."""
    with ExitStack() as stack:
        try:
            manager = stack.enter_context(open_user_manager())
        except NoManager as reason:
            pytest.skip(str(reason))
        yield manager


@pytest.fixture
def spawner(manager: UserManager, state: Path) -> SystemdSpawner:
    service_manager = ServiceManager("user", runtime=manager.runtime)
    return SystemdSpawner(state=state, settings=SupervisorSettings(), manager=service_manager)


@pytest.mark.parametrize("how", ["daemon-reload", "daemon-reexec"])
async def test_workers_are_watched_by_a_manager_that_has_begun_anew(
    spawner: SystemdSpawner, manager: UserManager, launch: MakeLaunch, told: Told, how: str
) -> None:
    async with spawner:
        # A file: systemd 252 itself changes a command with `$` when it reads its units again.
        script = launch("").directory / "script"
        script.write_text(STAYS)
        worker = await spawner.start(launch("", command=["sh", "script"], restart_seconds=0.01))
        pid = await told.next_pid()
        await to_thread.run_sync(manager.systemctl, how)
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)
        assert await next_report(worker) == Report("exited", "killed by SIGKILL")
        pid = await told.next_pid()
        assert await next_report(worker) == Report("restarted", pid=pid)
        other = await spawner.start(launch(STAYS, "agent:other"))
        assert await told.next_pid() == other.pid
        with patience():
            await worker.stop()
        assert not is_alive(pid)


async def test_workers_of_a_manager_that_has_ended_have_failed(
    spawner: SystemdSpawner,
    manager: UserManager,
    launch: MakeLaunch,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("busd.supervise.systemd_watch._SILENT_SECONDS", 0.5)
    monkeypatch.setattr("busd.supervise.systemd._STOP_GRACE_SECONDS", 0.0)
    async with spawner:
        worker = await spawner.start(launch(STAYS, stop_seconds=0.5))
        pid = await told.next_pid()
        manager.process.kill()
        os.kill(pid, signal.SIGKILL)
        await wait_for_end(pid)
        reports = await all_reports(worker)
    assert reports[-1] == Report("failed", "the service manager does not answer")
