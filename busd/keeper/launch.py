"""What to start: the record that a caller fills in and a spawner or a keeper executes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class Launch(NamedTuple):
    """A process to start, and its limits."""

    name: str
    command: list[str]  # must not contain secrets
    directory: Path  # current directory; output goes to logs/ in it
    environment: dict[str, str] = {}  # noqa: RUF012 - never modified
    credentials: dict[str, str] = {}  # noqa: RUF012 - name -> file, in $CREDENTIALS_DIRECTORY
    memory_max_bytes: int | None = None
    file_max_bytes: int | None = None
    cpu_percent: int | None = None
    tasks_max: int | None = None
    restarts: int = 5
    restart_seconds: float = 0.5
    stop_seconds: float = 5.0


# Fields with another name in the keeper's protocol. A daemon may connect to a keeper of an earlier
# version that still runs workers: these names must not change.
_SPELLED = {"name": "client_id", "directory": "workspace"}


def encode_launch(launch: Launch) -> dict[str, object]:
    """Return a launch as the JSON object that is sent to a keeper."""
    fields = {**launch._asdict(), "directory": str(launch.directory)}
    return {_SPELLED.get(name, name): value for name, value in fields.items()}


def decode_launch(received: dict[str, Any]) -> Launch:
    """Return the launch in a JSON object; raise TypeError if a field is missing."""
    spelled = {name: _SPELLED.get(name, name) for name in Launch._fields}
    fields = {name: received[key] for name, key in spelled.items() if key in received}
    launch = Launch(**fields)
    return launch._replace(directory=Path(launch.directory))
