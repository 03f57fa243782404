"""What the tests of the spawners share: both of them, on both loops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busd.keeper.launch import Launch
from busd.supervise.service_manager import ServiceManager
from busd.supervise.subprocess import SubprocessSpawner
from busd.supervise.systemd import SystemdSpawner
from busd.supervise.worker import Spawner, SupervisorSettings
from tests.daemons import PATIENCE_SECONDS
from tests.supervise.processes import Told
from tests.systemd.managers import ROOT, NoManager, UserManager, open_user_manager

Backend = tuple[str, dict[str, Any]]
MakeSpawner = Callable[..., Spawner]
MakeLaunch = Callable[..., Launch]
SECRET = "a secret of the daemon"


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """The loop that a test and its spawner run on."""
    chosen: Backend = request.param
    return chosen


@pytest.fixture(scope="session")
def user_manager() -> Iterator[UserManager]:
    """A user's manager."""
    with ExitStack() as stack:
        try:
            manager = stack.enter_context(open_user_manager())
        except NoManager as reason:
            pytest.skip(str(reason))
        yield manager


@pytest.fixture
def service_manager(user_manager: UserManager) -> ServiceManager:
    return ServiceManager("user", runtime=user_manager.runtime)


@pytest.fixture(params=["subprocess", "systemd"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which spawner."""
    return str(request.param)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def make_spawner(kind: str, state: Path, request: pytest.FixtureRequest) -> MakeSpawner:
    """Make spawners of one kind for one state directory."""

    def make(**settings: Any) -> Spawner:  # Any: whatever the settings are
        chosen = SupervisorSettings(**settings)
        if kind == "subprocess":
            return SubprocessSpawner(state=state, settings=chosen)
        manager = request.getfixturevalue("service_manager")
        return SystemdSpawner(state=state, settings=chosen, manager=manager)

    if kind == "systemd":
        request.getfixturevalue("service_manager")
    return make


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """Where workers tell the test something; none may be left after it."""
    told = Told(tmp_path)
    yield told
    left = told.left_behind()
    told.close()
    for pid in left:
        os.kill(pid, 9)
    assert not left, f"these were left behind: {left}"


@pytest.fixture
def launch(tmp_path: Path, told: Told) -> MakeLaunch:
    """Make launches of a shell's script, in a workspace of their own."""

    def make(script: str, name: str = "agent:w", **more: Any) -> Launch:  # Any: its members
        workspace = tmp_path / "workspaces" / name
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {**told.environment, **more.pop("environment", {})}
        command = more.pop("command", ["sh", "-c", script])
        return Launch(
            name=name,
            command=command,
            directory=workspace,
            environment=environment,
            **more,
        )

    return make


class KilledDaemon:
    """A daemon that has started its workers and can be killed."""

    def __init__(self, process: subprocess.Popen[bytes], count: int) -> None:
        self.process = process
        assert process.stdout is not None
        self.workers = [json.loads(process.stdout.readline()) for _ in range(count)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)


StartDaemon = Callable[..., KilledDaemon]


@pytest.fixture
def start_daemon(
    kind: str, state: Path, anyio_backend: Backend, request: pytest.FixtureRequest
) -> Iterator[StartDaemon]:
    """Start real daemons."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *launches: Launch,
        has_groups: bool = True,
        **settings: Any,  # Any: whatever the settings are
    ) -> KilledDaemon:
        manager = {}
        if kind == "systemd":
            running = request.getfixturevalue("user_manager")
            manager = {"runtime": str(running.runtime)}
        wanted = {
            "kind": kind,
            "state": str(state),
            "settings": settings,
            "manager": manager,
            "backend": anyio_backend[0],
            "launches": [msgspec.to_builtins(each, enc_hook=str) for each in launches],
        }
        process = subprocess.Popen(
            [
                *([] if has_groups else without_groups()),
                *(sys.executable, "-m", "tests.supervise.daemon", json.dumps(wanted)),
            ],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "OPENAI_API_KEY": SECRET},
        )
        started.append(process)
        return KilledDaemon(process, len(launches))

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def without_groups() -> list[str]:
    """Return what a command begins with that shall see no control groups; only root sees any."""
    if os.geteuid() != 0:
        return []
    hide = 'umount -a -t cgroup2 2>/dev/null; exec "$@"'
    return ["unshare", "--mount", "sh", "-c", hide, "sh"]
