"""Asking the gateway: requests, and what `receive` does when their outcome is known.

A request is yielded; its outcome is shown before the generator goes on. So a method that asks is
used with `yield from`, and returns the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from busd.gateway import Done, Effect, Effects, Leave, Refused, Request
from busd_plugins.tkr import rooms
from busd_plugins.tkr.connection import TASKS, Connection
from busd_plugins.tkr.rooms import Room
from busd_plugins.tkr.showing import Showing

Outcome = Done | Refused | None
Asked = Generator[Effect, None, Outcome]


def _nothing(outcome: Outcome) -> Effects:
    yield from ()


class Asking:
    """The request of a connection that is being performed; there is one at most."""

    def __init__(self, connection: Connection, showing: Showing) -> None:
        self.connection = connection
        self.showing = showing
        self._request: Request | None = None
        self._outcome: Outcome = None
        self._answer: Callable[[Outcome], Effects] = _nothing

    def settle(self, event: Done | Refused) -> Effects:
        """Note the outcome of the request, and answer the client."""
        if event.request is self._request:
            self._outcome = event
            yield from self._answer(event)

    def ask(self, request: Request, answer: Callable[[Outcome], Effects] = _nothing) -> Asked:
        """Have a request performed; `answer` comes before anything that it causes."""
        self._request, self._answer, self._outcome = request, answer, None
        yield request
        self._request = None
        return self._outcome

    def enter(self, session: str, room: Room | None = None, *, again: bool = False) -> Asked:
        """Enter a session, unless that was done before and nothing missed is asked for."""
        if session in self.connection.sessions and not again and not (room and room.asks_for_more):
            return None
        if (full := rooms.no_place(self.connection, session)) is not None:
            return full
        outcome = yield from self.ask(rooms.enter(self.connection, session, room))
        if not isinstance(outcome, Refused):
            self.connection.sessions.add(session)
        return outcome

    def leave(self, session: str) -> Asked:
        """Leave a session, if it was entered."""
        if session not in self.connection.sessions:
            return None
        outcome = yield from self.ask(Leave(session))
        if not isinstance(outcome, Refused):
            self.connection.sessions.discard(session)
            self.showing.forget(session)
        return outcome

    def subscribe(self, session: str, task_id: str, *, wanted: bool) -> Asked:
        """Subscribe to a task, or not any more; entering its session shows how it is now."""
        if not wanted:
            self.connection.tasks.discard(task_id)
            return None
        if (full := rooms.join(self.connection.tasks, task_id)) is not None:
            return full
        is_shown = self.connection.namespace == TASKS  # anywhere else all tasks are
        outcome = yield from self.enter(session, again=is_shown)
        if isinstance(outcome, Refused):
            self.connection.tasks.discard(task_id)
        return outcome
