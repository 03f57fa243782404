"""What the tests of the bridge kit share: a bus, and the place of one bridge on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bridge.toy import Place
from tests.client.conftest import anyio_backend as anyio_backend
from tests.conftest import DaemonWith
from tests.daemons import Daemon, Loop


@pytest.fixture(scope="session")
def loop() -> Loop:
    """The loop of the daemon: one is enough here, it is the bridges that run on both."""
    return "uvloop"


@pytest.fixture
def daemon(daemon_with: DaemonWith) -> Daemon:
    """A bus and nothing else: what is pushed goes to peers of the tests."""
    return daemon_with({"plugins.disabled": ["bub"]})


@pytest.fixture
def place(daemon: Daemon, suffix: str, tmp_path: Path) -> Place:
    return Place(f"unix:{daemon.path}", suffix, tmp_path)
