"""The tasks of a plugin: a task group in which a failed task does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

Blame = Callable[[str, BaseException | None], None]


def is_fault(problem: BaseException) -> bool:
    """Distinguish a plugin task's own end from our cancelling it.

    `sys.exit()` in a plugin must not end the daemon, and a cancelled future of the plugin must not
    end its task group.
    """
    if isinstance(problem, BaseExceptionGroup):
        return any(is_fault(each) for each in problem.exceptions)
    if isinstance(problem, anyio.get_cancelled_exc_class()):
        return anyio.current_effective_deadline() > -inf
    return isinstance(problem, Exception | SystemExit | KeyboardInterrupt)


class GuardedTasks:
    """A task group whose tasks may raise: recorded as a fault of the plugin; others continue."""

    def __init__(self, tasks: TaskGroup, blame: Blame) -> None:
        self._tasks = tasks
        self._blame = blame
        self.cancel_scope = tasks.cancel_scope

    def start_soon(self, func: Callable[..., Any], *args: Any, name: object = None) -> None:
        said = str(name or getattr(func, "__qualname__", "a task"))

        async def guarded() -> None:
            try:
                await func(*args)
            except BaseException as problem:
                if not is_fault(problem):
                    raise
                self._blame(f"task {said}", problem)

        self._tasks.start_soon(guarded, name=name or func)

    async def start(
        self, func: Callable[..., Coroutine[Any, Any, Any]], *args: Any, name: object = None
    ) -> Any:
        said = str(name or getattr(func, "__qualname__", "a task"))

        async def guarded(*, task_status: TaskStatus[Any]) -> None:
            status = _Status(task_status)
            try:
                await func(*args, task_status=status)
            except BaseException as problem:
                if not status.is_started or not is_fault(problem):
                    raise  # to the caller, who waits for the start or cancelled it
                self._blame(f"task {said}", problem)

        return await self._tasks.start(guarded, name=name or func)


class _Status:
    """Passes `started` on and remembers it."""

    def __init__(self, status: TaskStatus[Any]) -> None:
        self._status = status
        self.is_started = False

    def started(self, value: Any = None) -> None:
        self.is_started = True
        self._status.started(value)
