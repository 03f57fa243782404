"""A daemon whose settings are changed while it runs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.wire_peers import connect

_EVENTS = ("settings.reloaded", "settings.refused")


class Reloading:
    """A daemon and the file of its settings."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.config = daemon.folder / "busd.toml"

    def reload(self, text: str) -> list[dict[str, Any]]:
        """Write new settings, have them read, and give what the log says of it."""
        self.config.write_text(text)
        return self.hang_up()

    def hang_up(self) -> list[dict[str, Any]]:
        seen = len(self.log())
        self.daemon.signal(signal.SIGHUP)
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            said = self.log()[seen:]
            # What the log says last is said in the same moment as what it says first.
            if any(line["event"] in _EVENTS for line in said):
                self.ping()
                return [line for line in self.log()[seen:] if line["event"].startswith("settings")]
            self.ping()  # it reads a signal between two answers
        raise AssertionError(f"nothing was reloaded: {self.daemon.log()}")

    def ping(self) -> None:
        """Come back when the bus has done what it was at."""
        with closing(connect(self.daemon, "unix")) as owner:
            owner.initialize("owner")
            owner.call("ping")

    def log(self) -> list[dict[str, Any]]:
        whole, _, _ = self.daemon.log().rpartition("\n")  # the last line may be half written
        return [json.loads(line) for line in whole.splitlines()]

    def make_token(self, name: str) -> str:
        with closing(connect(self.daemon, "unix")) as owner:
            owner.initialize("owner")
            token: str = owner.call("bus.newToken", {"name": name})["token"]
            return token


@pytest.fixture
def reloading(loop: Loop) -> Iterator[Reloading]:
    """A daemon of this test's own; it says at level info what it reloads."""
    with open_daemon(loop, {"policy": "open"}, log_level="info") as daemon:
        yield Reloading(daemon)
