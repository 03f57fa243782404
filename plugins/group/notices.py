"""What is not said but noticed: who types, and who has read what."""

from __future__ import annotations

from collections.abc import Callable

from busd_plugins.group.errors import Invalid
from busd_plugins.group.messages import Json, text_of

MAX_IDS = 1_000  # of messages in one receipt
MAX_TYPING_BYTES = 4_096
_PER_SECOND = 3


class Typing:
    """Lets through only a few notices per second: clients send one for each key."""

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._second = ""
        self._count = 0
        self._is_typing: bool | None = None

    def is_news(self, is_typing: bool) -> bool:
        """Return whether the others should be told: of each change, and once a second."""
        second = self._now()[: len("2023-11-01T12:34:56")]
        if second != self._second:
            self._second, self._count, self._is_typing = second, 0, None
        if is_typing is self._is_typing or self._count >= _PER_SECOND:
            return False
        self._count += 1
        self._is_typing = is_typing
        return True


def is_typing(payload: Json) -> bool:
    """Return what a `typing` message says, in either of its two spellings."""
    said = payload.get("is_typing")
    return said if isinstance(said, bool) else payload.get("status", "typing") == "typing"


def read_ids(payload: Json) -> tuple[str, ...]:
    """Return the ids of the messages that a read receipt is about; raise Invalid."""
    given = payload.get("message_ids")
    field = "payload.message_ids"
    if given is None:
        given, field = [payload.get("message_id")], "payload.message_id"
    if not isinstance(given, list):
        raise Invalid(field, "必须是数组")
    if len(given) > MAX_IDS:
        raise Invalid(field, f"超过{MAX_IDS}项")
    ids = tuple(dict.fromkeys(text_of(item, field) for item in given))
    if not ids or "" in ids:
        raise Invalid(field, "缺失")
    return ids
