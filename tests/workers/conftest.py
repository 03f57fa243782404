"""What the tests of the spawners share: both of them, on both loops."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from busd import AgentsSettings
from busd_plugins.bub.spawner import Launch, Spawner
from busd_plugins.bub.subprocess_spawner import SubprocessSpawner
from busd_plugins.bub.systemctl import ServiceManager
from busd_plugins.bub.systemd_spawner import SystemdSpawner
from tests.systemd.managers import NoManager, UserManager, open_user_manager
from tests.workers.processes import Told

Backend = tuple[str, dict[str, Any]]
MakeSpawner = Callable[..., Spawner]
MakeLaunch = Callable[..., Launch]


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
    return ServiceManager(
        "user", run_by=user_manager.command(), environment=user_manager.environment()
    )


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
        agents = AgentsSettings(**settings)
        if kind == "subprocess":
            return SubprocessSpawner(state=state, agents=agents)
        manager = request.getfixturevalue("service_manager")
        return SystemdSpawner(state=state, agents=agents, manager=manager)

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

    def make(script: str, client_id: str = "agent:w", **more: Any) -> Launch:  # Any: its members
        workspace = tmp_path / "workspaces" / client_id
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {**told.environment, **more.pop("environment", {})}
        command = more.pop("command", ["sh", "-c", script])
        return Launch(
            client_id=client_id,
            command=command,
            workspace=workspace,
            environment=environment,
            **more,
        )

    return make
