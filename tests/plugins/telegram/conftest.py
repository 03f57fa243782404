"""What the tests of the Telegram bridge share: a bus, a server of the Bot API, and a bot there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import DaemonWith
from tests.daemons import Daemon, Loop
from tests.plugins.telegram.rig import Rig
from tests.plugins.telegram.server import Telegram


@pytest.fixture(scope="session")
def loop() -> Loop:
    """The loop of the daemon: one is enough here."""
    return "uvloop"


@pytest.fixture
def anyio_backend() -> str:
    """The loop of the bridge: aiogram knows no other."""
    return "asyncio"


@pytest.fixture
def daemon(daemon_with: DaemonWith) -> Daemon:
    """A bus and nothing else: the agent is the test's."""
    return daemon_with({"plugins.disabled": ["bub"]})


@pytest.fixture
def server() -> Iterator[Telegram]:
    with Telegram().start() as server:
        server.add_chat(7)
        yield server


@pytest.fixture
def rig(server: Telegram, daemon: Daemon, suffix: str, tmp_path: Path) -> Rig:
    return Rig(server, f"unix:{daemon.path}", suffix, tmp_path)
