"""The answers of agents while they are made: frames with one id, one time and the text so far.

The first frame is empty, the last one complete. Each has the whole text so far, so another one is
only sent when the text has grown by a share of itself: all frames of an answer together are at most
about 65 times as long as it is, and the first 64 characters are shown one by one.
"""

from __future__ import annotations

import msgspec

from busd.gateway import Turn

_SHARE = 64


class Stream(msgspec.Struct, eq=False):
    """One answer that is shown while it is made."""

    session: str
    id: str
    timestamp: str
    shown: int = 0  # characters of its text

    def is_due(self, text: str) -> bool:
        """Return whether the text has grown enough to be shown again."""
        return len(text) - self.shown >= max(1, self.shown // _SHARE)


class Streams:
    """The answers in the making that a client is shown, by the id that they will be kept under."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], Stream] = {}

    def start(self, session: str, turn: Turn, now: str) -> tuple[Stream, bool]:
        """Return the stream of a turn whose agent is known, and whether it is new."""
        key = (session, turn.reply_id)
        if found := self._streams.get(key):
            return found, False
        self._streams[key] = Stream(session, turn.reply_id, turn.timestamp or now)
        return self._streams[key], True

    def end(self, session: str, turn: Turn) -> Stream | None:
        """Return the stream of a turn that ends, None if it has none or has ended."""
        return self._streams.pop((session, turn.reply_id), None)

    def forget(self, session: str) -> None:
        """Forget those of a session that the client has left."""
        self._streams = {
            key: each for key, each in self._streams.items() if each.session != session
        }
