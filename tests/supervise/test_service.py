"""A process that the settings declare: every row of its table, and what changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from busd.supervise import Launch, Service, Spawners, SupervisorSettings, WantedService
from tests.daemons import PATIENCE_SECONDS
from tests.supervise.conftest import MakeLaunch
from tests.supervise.processes import Told, is_alive
from tests.supervise.test_life import STAYS

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def open_service(
    state: Path, is_present: Callable[[], bool] = lambda: False
) -> AsyncIterator[Service]:
    structlog.reset_defaults()
    async with anyio.create_task_group() as tasks:
        spawners = Spawners(state, SupervisorSettings(stop_seconds=0.5), tasks.start_soon)
        log = structlog.get_logger()
        yield (service := Service("clock", spawners, tasks.start_soon, log, is_present))
        await service.close()
        await spawners.close()


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while not is_so():
            await anyio.sleep(0.01)


def wanted(launch: Launch, basis: object = 1, **more: Any) -> WantedService:
    return WantedService(basis, launch._replace(stop_seconds=0.5, restart_seconds=0.05), **more)


async def test_it_starts_runs_once_it_has_joined_and_ends_when_it_is_not_wanted(
    state: Path, launch: MakeLaunch, told: Told
) -> None:
    async with open_service(state) as service:
        await service.apply(wanted(launch(STAYS)))
        assert (service.state, service.reason) == ("starting", "")
        pid = await told.next_pid()
        service.joined()
        assert (service.state, service.pid) == ("running", pid)
        await service.apply(None)
        assert (service.state, service.pid) == ("disabled", None)
        assert not is_alive(pid)
        service.joined()
        assert (service.state, service.pid) == ("disabled", None)


async def test_it_is_restarted_when_its_basis_changes_or_on_request_only(
    state: Path, launch: MakeLaunch, told: Told
) -> None:
    async with open_service(state) as service:
        await service.apply(wanted(launch(STAYS)))
        first = await told.next_pid()
        await service.apply(wanted(launch(STAYS)))
        assert service.pid == first
        await service.apply(wanted(launch(STAYS), basis=2))
        second = await told.next_pid()
        assert not is_alive(first)
        await service.apply(wanted(launch(STAYS), basis=2), is_anew=True)
        assert await told.next_pid() == service.pid
        assert not is_alive(second)


async def test_one_that_is_killed_waits_and_starts_again(
    state: Path, launch: MakeLaunch, told: Told
) -> None:
    async with open_service(state) as service:
        with capture_logs() as logged:
            await service.apply(wanted(launch(STAYS)))
            os.kill(await told.next_pid(), signal.SIGKILL)
            await until(lambda: service.state == "waiting" or service.restarts == 1)
            await until(lambda: service.state == "starting")
        assert await told.next_pid() == service.pid
        assert (service.restarts, service.reason) == (1, "killed by SIGKILL")
        events = [each["event"] for each in logged if each["event"].startswith("clock.")]
        assert events == ["clock.started", "clock.exited"]


async def test_one_that_has_joined_before_its_start_is_reported_runs(
    state: Path, launch: MakeLaunch, told: Told
) -> None:
    async with open_service(state, lambda: True) as service:
        await service.apply(wanted(launch(STAYS)))
        os.kill(await told.next_pid(), signal.SIGKILL)
        await until(lambda: service.restarts == 1)
        assert service.state == "running"


async def test_a_caller_waits_until_it_has_started(
    state: Path, launch: MakeLaunch, told: Told
) -> None:
    async with open_service(state) as service:
        await service.apply(wanted(launch(STAYS)))
        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(service.wait_until_started, 2 * PATIENCE_SECONDS)
                await told.next_pid()
                service.joined()
        assert service.state == "running"


async def test_one_that_ends_too_often_has_failed_and_starts_again_when_it_is_applied(
    state: Path, launch: MakeLaunch, told: Told
) -> None:
    async with open_service(state) as service:
        with capture_logs() as logged:
            await service.apply(wanted(launch("echo no luck >&2; exit 3", restarts=1)))
            await until(lambda: service.state == "failed")
        assert (service.reason, service.pid) == ("exit code 3: no luck", None)
        assert logged[-1] == {
            "event": "clock.failed",
            "reason": "exit code 3: no luck",
            "log_level": "error",
        }
        service.joined()
        assert service.state == "failed"
        assert service.log  # what it printed can still be read
        await service.apply(wanted(launch(STAYS)))
        await told.next_pid()
        assert (service.state, service.reason, service.restarts) == ("starting", "", 0)


async def test_one_that_ends_by_itself_has_stopped(state: Path, launch: MakeLaunch) -> None:
    async with open_service(state) as service:
        await service.apply(wanted(launch("exit 0")))
        await until(lambda: service.state == "stopped")


async def test_an_obstacle_is_the_reason_why_it_does_not_start(
    state: Path, launch: MakeLaunch
) -> None:
    async with open_service(state) as service:
        files = {"settings.json": b"{}"}
        await service.apply(wanted(launch(STAYS), obstacle="no luck today", files=files))
        assert (service.state, service.reason, service.pid) == ("failed", "no luck today", None)
        assert not (launch(STAYS).directory / "settings.json").exists()


async def test_its_files_are_there_for_its_user_only_before_it_starts(
    state: Path, launch: MakeLaunch, told: Told
) -> None:
    async with open_service(state) as service:
        order = launch('cat settings.json > "$TOLD"; exec sleep 600')
        await service.apply(wanted(order, files={"settings.json": b"all of them\n"}))
        assert await told.next_line() == "all of them"
        file = order.directory / "settings.json"
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o077) == (0o600, 0)


async def test_a_link_in_the_place_of_its_folder_is_not_followed(
    state: Path, launch: MakeLaunch, tmp_path: Path
) -> None:
    async with open_service(state) as service:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        order = launch(STAYS)
        order.directory.rmdir()
        order.directory.symlink_to(elsewhere)
        await service.apply(wanted(order, files={"settings.json": b"{}"}))
        assert service.state == "failed"
        assert "its settings cannot be written" in service.reason
        assert list(elsewhere.iterdir()) == []
