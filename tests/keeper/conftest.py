"""The fixtures of the spawners, for the tests of the keeper that one of them uses."""

from __future__ import annotations

from tests.supervise.conftest import (
    anyio_backend,
    kind,
    launch,
    make_spawner,
    start_daemon,
    state,
    told,
)

__all__ = ["anyio_backend", "kind", "launch", "make_spawner", "start_daemon", "state", "told"]
