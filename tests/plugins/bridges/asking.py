"""A bus with bridges, asked by its methods and by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from busd import SyncClient
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon

Record = dict[str, Any]  # what `bridges.list` says of a bridge
PROGRAM = str(Path(__file__).with_name("program.py"))


class Bridges:
    """The bridges of a daemon; each has the folder `DAEMON/NAME` for what a test tells it."""

    def __init__(self, daemon: Daemon, bus: SyncClient) -> None:
        self.daemon = daemon
        self.bus = bus

    def list(self) -> dict[str, Record]:
        return {each["name"]: each for each in self.bus.call("bridges.list")["bridges"]}

    def until(
        self, name: str, state: str, also: Callable[[Record], bool] = lambda record: True
    ) -> Record:
        """Return what is said of a bridge once it is in a state; the bus is asked repeatedly."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        record: Record = {}
        while time.monotonic() < deadline:
            record = self.list().get(name, {})
            if record.get("state") == state and also(record):
                return record
            assert state == "failed" or record.get("state") != "failed", record
            anyio.run(anyio.sleep, 0.02)
        raise AssertionError(f"it is not {state}: {record}")

    def say(self, name: str, /, **status: object) -> None:
        """Let a bridge answer this from now on."""
        say(self.daemon.folder, name, **status)

    def reload(self, tables: dict[str, Any]) -> Record:
        """Change the settings of the bus: its bridges are those from now on."""
        config = self.daemon.folder / "busd.toml"
        kept = [line for line in config.read_text().splitlines() if "bridges." not in line]
        config.write_text("\n".join([*kept, *lines_of(tables)]))
        done: Record = self.bus.call("bus.reload")
        return done

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Return what a command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "busd", *words, "--address", f"unix:{self.daemon.path}"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            env=os.environ | {"NO_COLOR": "1"},
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done


def say(folder: Path, name: str, /, **status: object) -> None:
    place = folder / name
    place.mkdir(exist_ok=True)
    new = place / "status.new"
    new.write_text(json.dumps(status))
    new.replace(place / "status.json")


def program(folder: Path, name: str, /, **more: object) -> dict[str, Any]:
    """Return the table of a bridge that is the program beside this file."""
    say(folder, name, state="connected", queue=0)
    environment = {"BRIDGE_FOLDER": str(folder / name)}
    table = {"command": [sys.executable, PROGRAM], "environment": environment}
    return {f"bridges.programs.{name}": table | more}


def lines_of(tables: dict[str, Any]) -> list[str]:
    """Return tables as dotted keys of TOML."""
    lines: list[str] = []
    for key, value in tables.items():
        if isinstance(value, dict):
            lines += lines_of({f"{key}.{name}": each for name, each in value.items()})
            lines += [] if value else [f"{key} = {{}}"]
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return lines


@contextmanager
def open_bridges(loop: Loop, folder: Path, tables: dict[str, Any]) -> Iterator[Bridges]:
    """Run a daemon whose settings have these tables of bridges."""
    flat = dict(line.split(" = ", 1) for line in lines_of(tables))
    settings = {key: json.loads(value) for key, value in flat.items()}
    with (
        open_daemon(loop, {"policy": "strict", **settings}, folder=folder) as daemon,
        SyncClient("test:bridges", address=f"unix:{daemon.path}") as bus,
    ):
        yield Bridges(daemon, bus)
