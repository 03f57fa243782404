"""Order: what is done in one conversation happens step by step, in the order in which it came."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

import anyio
import structlog
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from busd.errors import BusdError
from busd.gateway.refusal import Refusal, refusal_of, stopping
from busd.gateway.stored import StoreFailed, StoreRefusal

log = structlog.get_logger("busd.gateway")

R = TypeVar("R")


class StepFailed(BusdError):
    """A step has failed by a fault of the gateway; the details are in its log."""


class Order:
    """Runs the steps of one conversation, one after the other.

    A step may wait for the store; no other step begins meanwhile. Steps are run by tasks of the
    hub: whoever waits for one may be cancelled, and the step is done nevertheless.
    """

    def __init__(self, tasks: TaskGroup, on_idle: Callable[[], None]) -> None:
        self._tasks = tasks
        self._on_idle = on_idle
        self._waiting: deque[_Waiting[object]] = deque()
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        """Whether no step runs or waits."""
        return not self._is_running

    async def run(self, step: Callable[[], Awaitable[R]]) -> R:
        """Run a step and return its result; raise Refusal, or StepFailed for a fault of ours."""
        waiting = _Waiting(step)
        self._put(cast("_Waiting[object]", waiting))
        await waiting.done.wait()
        if waiting.problem is not None:
            raise waiting.problem
        return cast(R, waiting.result)

    def put(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step soon; if it is refused, it is not repeated."""
        self._put(cast("_Waiting[object]", _Waiting(step)))

    def _put(self, waiting: _Waiting[object]) -> None:
        self._waiting.append(waiting)
        if not self._is_running:
            self._is_running = True
            self._tasks.start_soon(self._work)

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._waiting.popleft().run()
                # To show something to a thousand clients takes milliseconds: others come between.
                await checkpoint()
        finally:
            self._is_running = False
            while self._waiting:  # only if the hub ends
                self._waiting.popleft().done.set()
        self._on_idle()


class _Waiting(Generic[R]):
    """A step, and its result when it is done."""

    def __init__(self, step: Callable[[], Awaitable[R]]) -> None:
        self._step = step
        self.result: R | None = None
        self.problem: BusdError | None = stopping()  # until it is done
        self.done = anyio.Event()

    async def run(self) -> None:
        try:
            self.result = await self._step()
            self.problem = None
        except Refusal as refusal:
            self.problem = refusal
        except (StoreRefusal, StoreFailed) as problem:
            self.problem = refusal_of(problem)
        except Exception:
            log.exception("step.failed")
            self.problem = StepFailed("the gateway has failed")
        finally:
            self.done.set()
