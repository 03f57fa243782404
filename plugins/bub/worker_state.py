"""The states of a worker, as its spawner knows it, and the transitions between them.

| from | event | to |
| --- | --- | --- |
| UNKNOWN | adopted | CONNECTING |
| STOPPED, FAILED | wanted | QUEUED |
| QUEUED | launch | LAUNCHING |
| LAUNCHING | spawned | CONNECTING |
| QUEUED, LAUNCHING | refused | STOPPED |
| LAUNCHING, STOPPED | failed | FAILED |
| CONNECTING | joined | READY |
| CONNECTING, READY | exited | DOWN |
| DOWN | restarted | CONNECTING |
| CONNECTING, READY, DOWN | told | ENDING |
| CONNECTING, READY, DOWN, ENDING | stopped | STOPPED |
| CONNECTING, READY, DOWN, ENDING | failed | FAILED |
| all but STOPPED, FAILED | lost | STOPPED |

Any other event leaves the state as it is. A connection under the worker's name is no event of the
worker's unless its process is known to run: a peer that joins while the worker is STOPPED, such as
a connection that an ended worker left in the socket's backlog, changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busd_plugins.bub.sessions import Status


class WorkerState(Enum):
    """Where a worker is in its life."""

    UNKNOWN = "unknown"  # an earlier bus started it; whether it still runs is not known yet
    QUEUED = "queued"  # it is to be started, and others are started first
    LAUNCHING = "launching"  # its spawner was asked to start it
    CONNECTING = "connecting"  # its process runs and has not joined the bus yet
    READY = "ready"  # its process runs and has joined the bus since its start
    DOWN = "down"  # its process has ended; the spawner starts it again
    ENDING = "ending"  # it was told to stop
    STOPPED = "stopped"  # no process: it was told to stop, or ended by itself
    FAILED = "failed"  # no process: it ended too often, or could not be started

    @property
    def has_ended(self) -> bool:
        return self in (WorkerState.STOPPED, WorkerState.FAILED)

    @property
    def is_expected(self) -> bool:
        """Its process runs, or soon will again, and was not asked to end."""
        return self in (WorkerState.CONNECTING, WorkerState.READY, WorkerState.DOWN)

    @property
    def takes_room(self) -> bool:
        """Its process runs, or will in a moment."""
        return self.is_expected or self in (WorkerState.LAUNCHING, WorkerState.ENDING)

    @property
    def has_place(self) -> bool:
        """It counts as one of the workers that there may be."""
        return self.takes_room or self is WorkerState.QUEUED

    @property
    def status(self) -> Status:
        """What the session says of it."""
        return _STATUSES[self]


_S = WorkerState
_STATUSES: dict[WorkerState, Status] = {
    _S.UNKNOWN: "spawning",
    _S.QUEUED: "spawning",
    _S.LAUNCHING: "spawning",
    _S.CONNECTING: "spawning",
    _S.READY: "running",
    _S.DOWN: "spawning",
    _S.ENDING: "running",
    _S.STOPPED: "stopped",
    _S.FAILED: "failed",
}
_ALIVE = (_S.CONNECTING, _S.READY, _S.DOWN, _S.ENDING)
TRANSITIONS: dict[tuple[WorkerState, str], WorkerState] = {
    (_S.UNKNOWN, "adopted"): _S.CONNECTING,
    (_S.STOPPED, "wanted"): _S.QUEUED,
    (_S.FAILED, "wanted"): _S.QUEUED,
    (_S.QUEUED, "launch"): _S.LAUNCHING,
    (_S.LAUNCHING, "spawned"): _S.CONNECTING,
    (_S.QUEUED, "refused"): _S.STOPPED,
    (_S.LAUNCHING, "refused"): _S.STOPPED,
    (_S.LAUNCHING, "failed"): _S.FAILED,
    (_S.STOPPED, "failed"): _S.FAILED,
    (_S.CONNECTING, "joined"): _S.READY,
    (_S.CONNECTING, "exited"): _S.DOWN,
    (_S.READY, "exited"): _S.DOWN,
    (_S.DOWN, "restarted"): _S.CONNECTING,
    **{(state, "told"): _S.ENDING for state in _ALIVE if state is not _S.ENDING},
    **{(state, "stopped"): _S.STOPPED for state in _ALIVE},
    **{(state, "failed"): _S.FAILED for state in _ALIVE},
    **{(state, "lost"): _S.STOPPED for state in WorkerState if not state.has_ended},
}


def initial_state(status: Status) -> WorkerState:
    """Return the state of a worker of which only the record of an earlier bus is known."""
    return {"stopped": _S.STOPPED, "failed": _S.FAILED}.get(status, _S.UNKNOWN)
