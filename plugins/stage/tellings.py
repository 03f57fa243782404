"""The answers that a client is being told, stage by stage."""

from __future__ import annotations

import msgspec

from busd.gateway import Step, Turn


class Telling(msgspec.Struct):
    """An answer that is told in stages."""

    turn: Turn
    is_own: bool  # only those of this client have stages
    is_begun: bool = False  # its `initial_response` was sent
    tools: dict[str, Step] = {}  # begun and not ended
    ended: set[str] = set()  # the ids of those that have ended


class Tellings:
    """Those of one connection."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Telling] = {}

    def of(self, turn: Turn, *, is_own: bool) -> Telling:
        """Return that of a turn; its agent may have become known since its last event."""
        key, unnamed = _key(turn), (turn.id, "")
        if key not in self._open and unnamed in self._open:
            self._open[key] = self._open.pop(unnamed)
        telling = self._open.setdefault(key, Telling(turn, is_own))
        telling.turn = turn
        return telling

    def end(self, turn: Turn) -> None:
        self._open.pop(_key(turn), None)


def _key(turn: Turn) -> tuple[str, str]:
    return turn.id, turn.agent.id
