"""The parties: one that misbehaves, one that must not notice."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.conftest import Join
from tests.daemons import Daemon
from tests.wire_peers import Peer, WebSocketPeer, join_by, join_web_socket, open_tcp


@pytest.fixture
def alice(join: Join, suffix: str) -> Peer:
    """The peer that misbehaves."""
    return join(f"agent:alice{suffix}")


@pytest.fixture
def witness(daemon: Daemon, opened: ExitStack, suffix: str) -> Peer:
    """Another peer, to see that it is served meanwhile."""
    return join_by(daemon, "unix", f"agent:witness{suffix}", opened)


@pytest.fixture
def browser(daemon: Daemon, opened: ExitStack) -> WebSocketPeer:
    """A TCP connection that has said nothing yet."""
    return WebSocketPeer(opened.enter_context(open_tcp(daemon.port)))


@pytest.fixture
def talker(daemon: Daemon, opened: ExitStack, suffix: str) -> WebSocketPeer:
    """A peer on a WebSocket."""
    return join_web_socket(daemon, f"agent:talker{suffix}", opened)
