"""What the tests of the clients share: the loops they run on, and how to make a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from busd import Client
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop
from tests.wire_peers import Transport

MakeClient = Callable[..., Client]
Backend = tuple[str, dict[str, Any]]


@pytest.fixture(scope="session")
def loop() -> Loop:
    """The loop of the daemon: one is enough here, it is the clients that run on both."""
    return "uvloop"


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """The loop that a test and its clients run on."""
    chosen: Backend = request.param
    return chosen


@pytest.fixture
def unix(daemon: Daemon) -> str:
    """The address of the daemon's Unix socket."""
    return f"unix:{daemon.path}"


@pytest.fixture
def address(daemon: Daemon, transport: Transport) -> str:
    """The address of the daemon, once for each transport."""
    return address_of(daemon, transport)


@pytest.fixture
def client(unix: str, suffix: str) -> MakeClient:
    """Make clients; a short name is made one that no other test has."""

    def make(name: str, **options: Any) -> Client:
        return Client(name + suffix, **{"address": unix, **PATIENT, **options})

    return make


PATIENT: dict[str, Any] = {"timeout_seconds": PATIENCE_SECONDS}


def address_of(daemon: Daemon, transport: Transport) -> str:
    """Return the address at which the daemon speaks this transport."""
    if transport == "unix":
        return f"unix:{daemon.path}"
    return (
        f"tcp://127.0.0.1:{daemon.port}" if transport == "tcp" else f"ws://127.0.0.1:{daemon.port}/"
    )
