"""A bus with a gateway, asked by its methods and by the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from busd import SyncClient
from tests.daemons import PATIENCE_SECONDS, Daemon

Status = dict[str, Any]  # what `gateway.status` answers


class Gateway:
    """The gateway of a daemon."""

    def __init__(self, daemon: Daemon, bus: SyncClient) -> None:
        self.daemon = daemon
        self.bus = bus

    def status(self) -> Status:
        found: Status = self.bus.call("gateway.status")
        return found

    def until(self, state: str, also: Callable[[Status], bool] = lambda status: True) -> Status:
        """Return its status once it is in a state; the bus is asked again and again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            status = self.status()
            is_up = state != "running" or status.get("overview", {}).get("is_connected")
            if status["state"] == state and is_up and also(status):
                return status
            assert state == "failed" or status["state"] != "failed", status
            anyio.run(anyio.sleep, 0.02)
        raise AssertionError(f"it is not {state}: {status}")

    def place(self) -> tuple[str, int]:
        """Return where it listens."""
        host, _, port = self.until("running")["listen"].rpartition(":")
        return host, int(port)

    def run(self, *words: str, is_fine: bool = True) -> str:
        """Return what a command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "busd", *words, "--address", f"unix:{self.daemon.path}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=os.environ | {"NO_COLOR": "1"},
        )
        assert not is_fine or done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def open_gateway_of(daemon: Daemon) -> Iterator[Gateway]:
    with SyncClient("test:gateway", address=f"unix:{daemon.path}") as bus:
        yield Gateway(daemon, bus)
