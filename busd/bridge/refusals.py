"""What a bridge raises, and what it gets raised."""

from __future__ import annotations

from busd.errors import BusdError, CallRefused, Refuse

REFUSED = -32000


class SlowDown(Refuse):
    """Raised by `post` and `show`: the other system asks to wait (HTTP 429).

    With `everywhere` nothing is posted to any chat until then.
    """

    def __init__(self, seconds: float, *, everywhere: bool = True, reason: str = "") -> None:
        seconds = max(seconds, 0.0)
        said = reason or f"the other system asks to wait {seconds:g} seconds"
        super().__init__(said, retry_seconds=seconds)
        self.seconds = seconds
        self.everywhere = everywhere


class MaybePosted(Refuse):
    """Raised by `post` if it cannot know the outcome: a time-out, half a response.

    The part is posted again after `retry_seconds`, with `is_repeat`.
    """

    def __init__(self, reason: str, *, retry_seconds: float = 1.0) -> None:
        super().__init__(reason, retry_seconds=retry_seconds)


class PushRefused(CallRefused):
    """The addressee of a pushed message has refused it permanently."""

    def __init__(self, reason: str) -> None:
        super().__init__(REFUSED, reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class TooLarge(BusdError, ValueError):
    """A message is too large for the bus; nothing was sent."""
