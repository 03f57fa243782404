"""How the requests of one client ended."""

from __future__ import annotations

from collections.abc import Generator

from busd.gateway import Done, Effect, Refused, Request

Performing = Generator[Effect, None, Done | None]


class Outcomes:
    """Performs requests and notes how the last one ended."""

    def __init__(self) -> None:
        self._done: Done | None = None
        self._silent: Request | None = None

    def perform(self, request: Request, *, is_silent: bool = False) -> Performing:
        """Yield a request and return how it was done; None: it was refused.

        The client is told of a refusal, unless `is_silent`.
        """
        self._done = None
        self._silent = request if is_silent else None
        yield request
        return self._done

    def note_done(self, event: Done) -> None:
        """Note that a request was performed."""
        self._done = event

    def is_silent(self, event: Refused) -> bool:
        """Return whether the client is not to be told of a refusal."""
        return event.request is self._silent
