"""A simulated disk for mail: the test decides when operations are durable, and when it crashes.

    disk = SimulatedDisk(limits)
    store = disk.start()           # a MailStore, for one run of the bus
    store.submit(Keep(mail), done)
    store.sync()                   # durable, as one transaction; the bus does not know yet
    store.deliver()                # done(Kept(...))
    disk.crash(is_synced=False)    # `store` is dead; what was not durable is lost
    store = disk.start()

A crash may also tear the last page: the transactions whose outcomes were not delivered are lost.

Nothing depends on threads, clocks or chance, so a seeded simulation can be replayed.
"""

from __future__ import annotations

from typing import Any, TypeVar

from busd.bus.mail import MailLimits, StoreBusy, StoreFailed, Totals
from busd.bus.mail_store import Done, Keep, Operation
from busd.mail.engine import Engine
from busd.mail.memory import MemoryTables
from busd.mail.state import EngineState

R = TypeVar("R")


class SimulatedDisk:
    """What survives a crash."""

    def __init__(self, limits: MailLimits) -> None:
        self.engine: Engine[MemoryTables] = Engine(MemoryTables(), EngineState(limits))
        self._store: SimulatedMailStore | None = None

    def start(self) -> SimulatedMailStore:
        """Return the store of a new run; claims of earlier runs have ended."""
        self.crash(is_synced=False)
        self._store = SimulatedMailStore(self.engine)
        return self._store

    def crash(self, *, is_synced: bool, is_torn: bool = False) -> None:
        """End the run; what waits is synced at the last moment, or lost.

        With `is_torn`, what was synced is lost, too, if the bus was not told of it.
        """
        store, self._store = self._store, None
        if store and is_torn:
            store.tear()
        if store:
            if is_synced:
                store.sync()
            store.is_dead = True
        state = self.engine.state
        state.claims.clear()
        state.commit()


class SimulatedMailStore:
    """A `MailStore` whose operations wait for the test."""

    def __init__(self, engine: Engine[MemoryTables]) -> None:
        self.is_failing = False
        self.is_dead = False
        self._engine = engine
        self._waiting: list[tuple[Operation[Any], Done[Any]]] = []
        self._outcomes: list[tuple[Done[Any], Any]] = []
        # What there was before the first transaction whose outcomes were not delivered.
        self._before: tuple[MemoryTables, EngineState] | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._outcomes)

    @property
    def totals(self) -> Totals:
        return self._engine.state.totals

    def submit(self, operation: Operation[R], done: Done[R], /) -> None:
        limit = self._engine.state.limits.waiting_count
        if isinstance(operation, Keep) and self.waiting >= limit:
            done(StoreBusy(limit))
        else:
            self._waiting.append((operation, done))

    def sync(self, count: int | None = None) -> None:
        """Commit the first `count` operations, or all of them."""
        if self._before is None and self._waiting:
            self._before = self._engine.tables.copy(), self._engine.state.copy()
        for operation, done in self._next(count):
            self._outcomes.append((done, self._engine.apply(operation)))
        self._engine.state.commit()
        self.is_failing = False

    def tear(self) -> None:
        """Undo all transactions whose outcomes were not delivered."""
        if self._before is not None:
            self._engine.tables, self._engine.state = self._before
            self._outcomes.clear()

    def fail(self, problem: str, count: int | None = None) -> None:
        """Fail the first `count` operations as on a broken disk, or all of them."""
        for _, done in self._next(count):
            self._outcomes.append((done, StoreFailed(problem)))
        self.is_failing = True

    def deliver(self) -> None:
        """Call back with the outcomes that are there."""
        self._before = None
        outcomes, self._outcomes = self._outcomes, []
        for done, outcome in outcomes:
            if not self.is_dead:
                done(outcome)

    def close(self, seconds: float) -> bool:
        self.sync()
        self.deliver()
        self.is_dead = True
        return True

    def _next(self, count: int | None) -> list[tuple[Operation[Any], Done[Any]]]:
        if self.is_dead:
            return []
        chosen = self._waiting[:count]
        del self._waiting[: len(chosen)]
        return chosen
