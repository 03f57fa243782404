"""What the tests of the command line share: a terminal beside a bus, and peers to talk to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from busd import SyncClient
from tests.cli.terminal import Terminal
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop

Join = Callable[[str], SyncClient]


@pytest.fixture(scope="session")
def loop() -> Loop:
    """The loop of the daemon: one is enough here."""
    return "uvloop"


@pytest.fixture
def address(daemon: Daemon) -> str:
    return f"unix:{daemon.path}"


@pytest.fixture
def terminal(tmp_path: Path, address: str) -> Terminal:
    """A terminal in which $BUSD_ADDRESS is a bus that runs."""
    return Terminal(tmp_path, address)


@pytest.fixture
def lonely(tmp_path: Path) -> Terminal:
    """A terminal of somebody who has no bus."""
    return Terminal(tmp_path)


@pytest.fixture
def join(address: str, suffix: str, opened: ExitStack) -> Join:
    """Join the bus with a short name that is made one that no other test has."""

    def join_as(name: str) -> SyncClient:
        peer = SyncClient(name + suffix, address=address, timeout_seconds=PATIENCE_SECONDS)
        return opened.enter_context(peer)

    return join_as


@pytest.fixture
def bob(join: Join) -> SyncClient:
    """A peer that answers every message with an empty ack."""
    peer = join("agent:bob")
    peer.on()(lambda message: None)
    return peer
