"""The engines under test, behind one synchronous interface: `do` an operation, `restart`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import anyio
import sniffio
from anyio.from_thread import start_blocking_portal

from busd.bus.mail import Mail, MailFailure, MailLimits
from busd.bus.mail_store import MailStore, Operation
from busd.mail.memory import MemoryMailStore
from busd.mail.simulated import SimulatedDisk
from busd.mail.sqlite import Schedule, SqliteMailStore

R = TypeVar("R")
PATIENCE_SECONDS = 20.0
LIMITS = MailLimits()


def mail(message_id: str = "m", /, **changes: Any) -> Mail:
    """Return mail from tg:1 to agent:a that expires at 2000."""
    given = {
        "sender": "tg:1",
        "address": "agent:a",
        "message_id": message_id,
        "payload": b'{"text":"hi"}',
        "kept_at": 1000.0,
        "expires_at": 2000.0,
    }
    return Mail(**{**given, **changes})


class Subject(Protocol):
    """A store under test."""

    store: MailStore

    def submit_all(self, operations: list[Operation[Any]]) -> list[Any]:
        """Submit operations at once; return their outcomes in the order of delivery."""

    def restart(self) -> None:
        """Close the store and open it again."""

    def close(self) -> None: ...


def do(subject: Subject, operation: Operation[R]) -> R:
    """Carry out an operation that must not fail."""
    outcome: R | MailFailure = subject.submit_all([operation])[0]
    assert not isinstance(outcome, MailFailure), outcome
    return outcome


def refused(subject: Subject, operation: Operation[Any]) -> MailFailure:
    """Carry out an operation that must fail."""
    outcome = subject.submit_all([operation])[0]
    assert isinstance(outcome, MailFailure), outcome
    return outcome


class OnALoop:
    """The SQLite engine on a loop of its own."""

    def __init__(self, backend: Literal["asyncio", "trio"], path: Path, limits: MailLimits) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal(backend))
        self._path, self._limits = path, limits
        self.store = self._portal.call(self._open)

    async def _open(self) -> MailStore:
        return SqliteMailStore(self._path, schedule_here(), self._limits)

    def submit_all(self, operations: list[Operation[Any]]) -> list[Any]:
        return self._portal.call(self._submit_all, operations)

    async def _submit_all(self, operations: list[Operation[Any]]) -> list[Any]:
        outcomes: list[Any] = []
        all_done, thread = anyio.Event(), threading.get_ident()

        def done(outcome: Any) -> None:
            assert threading.get_ident() == thread
            outcomes.append(outcome)
            if len(outcomes) == len(operations):
                all_done.set()

        for operation in operations:
            self.store.submit(operation, done)
        with anyio.fail_after(PATIENCE_SECONDS):
            await all_done.wait()
        return outcomes

    def restart(self) -> None:
        assert self._portal.call(self.store.close, PATIENCE_SECONDS)
        self.store = self._portal.call(self._open)

    def close(self) -> None:
        assert self._portal.call(self.store.close, PATIENCE_SECONDS)
        self._stack.close()


def schedule_here() -> Schedule:
    """Return the function that has others called on the loop that runs now."""
    if sniffio.current_async_library() == "trio":
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon
    import asyncio

    return asyncio.get_running_loop().call_soon_threadsafe


class InMemory:
    """The engine in memory; it has no restart."""

    def __init__(self, limits: MailLimits) -> None:
        self._scheduled: list[Callable[[], None]] = []
        self.store: MailStore = MemoryMailStore(self._scheduled.append, limits)

    def submit_all(self, operations: list[Operation[Any]]) -> list[Any]:
        outcomes: list[Any] = []
        for operation in operations:
            self.store.submit(operation, outcomes.append)
        while self._scheduled:
            self._scheduled.pop(0)()
        return outcomes

    def restart(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        assert self.store.close(0)


class OnSimulatedDisk:
    """The engine on a simulated disk; it restarts by a crash."""

    def __init__(self, limits: MailLimits) -> None:
        self.disk = SimulatedDisk(limits)
        self._started = self.disk.start()
        self.store: MailStore = self._started

    def submit_all(self, operations: list[Operation[Any]]) -> list[Any]:
        outcomes: list[Any] = []
        for operation in operations:
            self.store.submit(operation, outcomes.append)
        self._started.sync()
        self._started.deliver()
        return outcomes

    def restart(self) -> None:
        self.disk.crash(is_synced=False)
        self.store = self._started = self.disk.start()

    def close(self) -> None:
        assert self.store.close(0)


ENGINES = ("sqlite-asyncio", "sqlite-trio", "memory", "simulated")


def open_subject(engine: str, path: Path, limits: MailLimits = LIMITS) -> Subject:
    """Open an engine by name."""
    if engine == "sqlite-asyncio":
        return OnALoop("asyncio", path, limits)
    if engine == "sqlite-trio":
        return OnALoop("trio", path, limits)
    return InMemory(limits) if engine == "memory" else OnSimulatedDisk(limits)
