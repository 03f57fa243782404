"""The cause of what a handler sends: the message that it handles.

While a handler runs, its messages carry the id of the handled message in `causedBy`, and so do
those of the tasks and threads that it starts. The bus counts such chains, and ends those that would
go on forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_handled: ContextVar[str] = ContextVar("busd.handled", default="")


def handled_message() -> str:
    """Return the id of the message that is being handled here, or ""."""
    return _handled.get()


def begin_handling(message_id: str) -> None:
    """Let messages that this task sends from now on be caused by a message."""
    _handled.set(message_id)


@contextmanager
def handling(message_id: str) -> Iterator[None]:
    """Let messages that are sent in this block be caused by a message."""
    token = _handled.set(message_id)
    try:
        yield
    finally:
        _handled.reset(token)
