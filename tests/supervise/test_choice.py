"""Which spawner is chosen, and what is said about it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import structlog
from anyio import to_thread
from structlog.testing import capture_logs

from busd.supervise.spawners import choose_spawner, spawner_name
from busd.supervise.worker import SpawnFailed, SupervisorSettings
from tests.systemd.managers import UserManager, is_booted

ASKS = """
import anyio
from busd.supervise.spawners import spawner_name
print(anyio.run(spawner_name, "auto"))
"""

pytestmark = pytest.mark.anyio


async def test_subprocess_is_what_was_asked_for(state: Path) -> None:
    chosen = await choose_spawner("subprocess", SupervisorSettings(), state)
    assert chosen.name == await spawner_name("subprocess") == "subprocess"


@pytest.mark.skipif(is_booted(), reason="this host was booted with systemd")
async def test_without_systemd_workers_are_our_own_and_the_log_says_why(state: Path) -> None:
    structlog.reset_defaults()
    with capture_logs() as said:
        chosen = await choose_spawner("auto", SupervisorSettings(), state)
    assert chosen.name == await spawner_name("auto") == "subprocess"
    assert said[0]["event"] == "spawner.chosen"
    assert said[0]["reason"] == "this host was not booted with systemd"
    with pytest.raises(SpawnFailed) as problem:
        await choose_spawner("systemd", SupervisorSettings(), state)
    assert str(problem.value) == (
        "workers are to be run by systemd, but this host was not booted with systemd"
    )


async def test_systemd_is_chosen_where_its_manager_answers(user_manager: UserManager) -> None:
    done = await to_thread.run_sync(user_manager.run, sys.executable, "-c", ASKS)
    assert (done.stdout, done.stderr) == ("systemd\n", "")


@pytest.mark.parametrize("name", ["NOTIFY_SOCKET", "SYSTEMD_EXEC_PID"])
async def test_a_service_says_that_its_own_processes_cannot_be_kept(
    state: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kept = SupervisorSettings(when_bus_stops="keep")
    for each in ("NOTIFY_SOCKET", "SYSTEMD_EXEC_PID"):
        monkeypatch.delenv(each, raising=False)
    assert await warnings_of(kept, state) == []
    monkeypatch.setenv(name, str(os.getpid()))
    assert await warnings_of(kept, state) == ["workers.not_kept"]
    assert await warnings_of(SupervisorSettings(), state) == []


async def warnings_of(settings: SupervisorSettings, state: Path) -> list[str]:
    structlog.reset_defaults()
    with capture_logs() as said:
        await choose_spawner("subprocess", settings, state)
    return [each["event"] for each in said if each["log_level"] == "warning"]
