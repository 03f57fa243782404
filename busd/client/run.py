"""`run`: run a program that Ctrl-C and SIGTERM end cleanly."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
from anyio.abc import TaskStatus

from busd.errors import BusdError

Loop = Literal["asyncio", "uvloop", "trio"]
Main = Callable[[], Awaitable[object]]


def run(main: Main, *, loop: Loop = "asyncio") -> None:
    """Run an async function until it returns, or until Ctrl-C or SIGTERM cancels it.

    An error of the bus ends the program with exit code 1 and a one-line message.
    """
    backend: Literal["asyncio", "trio"] = "trio" if loop == "trio" else "asyncio"
    options = {"use_uvloop": True} if loop == "uvloop" else {}
    try:
        anyio.run(run_until_signal, main, backend=backend, backend_options=options)
    except BusdError as problem:
        sys.exit(f"busd: {problem}")


async def run_until_signal(main: Main) -> None:
    """Await `main`; cancel it at the first SIGINT or SIGTERM, and exit at once at the next."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, tasks.cancel_scope)
        try:
            await main()
        except Exception as problem:
            failure = problem  # raised as it is, not in an exception group
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _watch_signals(
    scope: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return
