"""Default locations of the bus of this user: its folders, its addresses and its token."""

from __future__ import annotations

import os
from pathlib import Path

from busd.wire.bus_address import DEFAULT_PORT, BusAddress, parse_bus_address


def runtime_directory() -> Path:
    """Return the folder of the socket: of the service, the user, the system, or the state."""
    if given := os.environ.get("RUNTIME_DIRECTORY"):
        return Path(given.split(":")[0])
    if user := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(user) / "busd"
    if os.geteuid() == 0:
        return Path("/run/busd")
    return state_directory() / "run"


def state_directory() -> Path:
    """Return the folder for files that persist across restarts."""
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    if user := os.environ.get("XDG_STATE_HOME"):
        return Path(user) / "busd"
    return Path.home() / ".local/state/busd"


def default_listen() -> list[str]:
    """Return the addresses a daemon listens on by default."""
    return [f"unix:{runtime_directory() / 'bus.sock'}", f"tcp://127.0.0.1:{DEFAULT_PORT}"]


def find_token(address: BusAddress) -> str:
    """Return the token for this address: from the URL, from a file, or the owner's own.

    A Unix socket needs none. Over the network, no token is sent unencrypted, and the token of our
    own bus is never sent to another host.
    """
    if address.token:
        return address.token
    if address.scheme == "unix" or not (address.is_loopback or address.is_encrypted):
        return ""
    own = [state_directory() / "token"] if address.is_loopback else []
    for place in [*_token_files(), *own]:
        try:
            return place.read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
    return ""


def _token_files() -> list[Path]:
    """Return the token files named by the environment."""
    places = [Path(said)] if (said := os.environ.get("BUSD_TOKEN_FILE")) else []
    if folder := os.environ.get("CREDENTIALS_DIRECTORY"):
        places.append(Path(folder) / "busd-token")
    return places


def find_bus(address: str | None = None) -> BusAddress:
    """Return the address of the bus: as given, else from the environment, else the user's own."""
    said = address or os.environ.get("BUSD_ADDRESS") or os.environ.get("BUB_BUS_URL")
    return parse_bus_address(said or default_listen()[0])
