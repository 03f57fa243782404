"""The link to a service manager: a connection that is opened again when lost, calls and jobs.

It uses the manager's private socket, as `systemctl` does. That needs no bus daemon, whoever may
connect may do everything, and nobody but the manager can send anything; signals of all units come
without match rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import structlog
from anyio.abc import TaskStatus
from jeepney import DBusAddress

from busd.supervise.dbus import Body, BrokenLink, DBusConnection, DBusError, open_dbus

NAME = "org.freedesktop.systemd1"
ROOT = "/org/freedesktop/systemd1"
MANAGER = DBusAddress(ROOT, NAME, f"{NAME}.Manager")
ANSWER_SECONDS = 10.0

_SUBSCRIBE_SECONDS = 5.0
_RETRY_SECONDS = 0.2
_MAX_CALLS = 64  # at a time

log = structlog.get_logger()


class ManagerSilent(Exception):
    """The service manager did not do what it was asked; the text is its own."""


class LinkLost(ManagerSilent):
    """The connection ended before the answer came; what was asked may have been done or not."""


class Refused(ManagerSilent):
    """The manager answered with an error."""

    def __init__(self, problem: DBusError) -> None:
        super().__init__(str(problem))
        self.name = problem.name


class ManagerLink:
    """The connection to one manager; calls wait while there is none."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._turns = anyio.Semaphore(_MAX_CALLS)
        self._connection: DBusConnection | None = None
        self._is_served = False
        self._has_changed = anyio.Event()  # from connected to not, or back
        self._problem = ""  # why there is no connection
        self._jobs: dict[str, _Job] = {}  # those that somebody waits for
        self._on_signal: Callable[[str, str, Body], None] = lambda path, member, body: None
        self._on_connection: Callable[[], None] = lambda: None

    def notify(
        self, on_signal: Callable[[str, str, Body], None], on_connection: Callable[[], None]
    ) -> None:
        """Register callbacks: for each signal, and for a connection that was opened or lost."""
        self._on_signal, self._on_connection = on_signal, on_connection

    # -- the connection ------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Serve the connection within the block, unless another task does already."""
        if self._is_served:
            yield
            return
        problem: ManagerSilent | None = None
        async with anyio.create_task_group() as tasks:
            self._is_served = True  # from now on: another task may ask before `serve` has begun
            tasks.start_soon(self.serve)
            try:
                yield
            except ManagerSilent as raised:
                problem = raised  # the group would wrap it
            tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Connect, and read what the manager sends; a lost connection is opened again."""
        self._is_served = True
        task_status.started()
        try:
            while True:
                try:
                    async with open_dbus(self._socket, self._receive) as connection:
                        await self._serve_connection(connection)
                except OSError as problem:
                    self._problem = f"{self._socket}: {problem.strerror or problem}"
                except BrokenLink as problem:
                    self._problem = f"{self._socket}: {problem}"
                self._lose()
                await anyio.sleep(_RETRY_SECONDS)
        finally:
            self._is_served = False
            self._lose()

    async def _serve_connection(self, connection: DBusConnection) -> None:
        self._problem = ""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._subscribe, connection)
            why = await connection.serve()
            self._problem = self._problem or why
            if self._connection is connection:
                log.warning("service_manager.lost", socket=str(self._socket), reason=why)
                self._on_connection()
            tasks.cancel_scope.cancel()

    async def _subscribe(self, connection: DBusConnection) -> None:
        try:
            with anyio.fail_after(_SUBSCRIBE_SECONDS):
                await connection.call(MANAGER, "Subscribe")
        except TimeoutError:
            self._problem = f"no answer in {_SUBSCRIBE_SECONDS:g} s"
        except (BrokenLink, DBusError) as problem:
            self._problem = str(problem)
        else:
            self._connection = connection
            self._note_change()
            self._on_connection()
            return
        connection.close()

    def _lose(self) -> None:
        self._connection = None
        self._note_change()
        for job in self._jobs.values():
            job.end("")
        self._jobs.clear()

    def _note_change(self) -> None:
        self._has_changed.set()
        self._has_changed = anyio.Event()

    def _receive(self, path: str, member: str, body: Body) -> None:
        if member == "JobRemoved":
            _, job, _, result = body
            if job in self._jobs:
                self._jobs.pop(job).end(result)
        else:
            self._on_signal(path, member, body)

    # -- calls ---------------------------------------------------------------------------------

    async def call(
        self,
        address: DBusAddress,
        member: str,
        signature: str,
        body: Body,
        *,
        seconds: float = ANSWER_SECONDS,
        on_reply: Callable[[Body], None] | None = None,
    ) -> Body:
        """Return the body of a reply; raise ManagerSilent."""
        try:
            async with self._turns:
                with anyio.fail_after(seconds):
                    connection = await self._connected()
                    return await connection.call(address, member, signature, body, on_reply)
        except TimeoutError:
            why = self._problem if self._connection is None else ""
            raise ManagerSilent(f"{member}: {why or f'no answer in {seconds:g} s'}") from None
        except BrokenLink as problem:
            raise LinkLost(f"{member}: {problem}") from None
        except DBusError as problem:
            raise Refused(problem) from None

    async def _connected(self) -> DBusConnection:
        while self._connection is None or self._connection.is_closed:
            if not self._is_served:
                raise BrokenLink("not connected")
            await self._has_changed.wait()
        return self._connection

    async def run_job(self, member: str, signature: str, body: Body, *, seconds: float) -> str:
        """Call a method that queues a job; return the job's result: `done`, `failed`, ..."""
        path, job = "", _Job()

        def on_reply(reply: Body) -> None:
            # Before the signal that ends the job can be read. It may be another caller's job, too.
            nonlocal path, job
            path = reply[0]
            job = self._jobs.setdefault(path, job)
            job.waiting += 1

        try:
            await self.call(MANAGER, member, signature, body, on_reply=on_reply)
            with anyio.fail_after(seconds):
                await job.has_ended.wait()
        except TimeoutError:
            raise ManagerSilent(f"{member}: {body[0]} has not done it in {seconds:g} s") from None
        finally:
            job.waiting -= 1
            if job.waiting <= 0 and self._jobs.get(path) is job:
                del self._jobs[path]
        if not job.result:
            raise LinkLost(f"{member}: the connection was lost")
        return job.result


class _Job:
    def __init__(self) -> None:
        self.has_ended = anyio.Event()
        self.result = ""  # empty if nobody will ever know
        self.waiting = 0  # callers

    def end(self, result: str) -> None:
        self.result = result
        self.has_ended.set()
