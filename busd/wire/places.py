"""Where the bus of this user is, when nobody says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

from busd.wire.bus_address import DEFAULT_PORT, BusAddress, parse_bus_address


def runtime_directory() -> Path:
    """Give the folder of the socket: systemd's, the user's, the system's, else in the state."""
    if given := os.environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0])
    if user := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(user) / "busd"
    if os.geteuid() == 0:
        return Path("/run/busd")
    return state_directory() / "run"


def state_directory() -> Path:
    """Give the folder that outlives a restart."""
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    if user := os.environ.get("XDG_STATE_HOME"):
        return Path(user) / "busd"
    return Path.home() / ".local/state/busd"


def default_listen() -> list[str]:
    """Give the addresses a daemon listens on by default."""
    return [f"unix:{runtime_directory() / 'bus.sock'}", f"tcp://127.0.0.1:{DEFAULT_PORT}"]


def find_bus(address: str | None = None) -> BusAddress:
    """Give the address of the bus: as said, else from the environment, else the user's own."""
    said = address or os.environ.get("BUSD_ADDRESS") or os.environ.get("BUB_BUS_URL")
    return parse_bus_address(said or default_listen()[0])
