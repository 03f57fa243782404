"""The caller: keeps one connection to the bus open (a `Line`), and calls methods over it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup
from msgspec import Raw

from busd.client.connect import LIMITS, open_line, pauses
from busd.client.line import Line, TakeMessage
from busd.errors import BusdError, BusUnreachable, Busy, CallRefused, ConnectionLost, NoAnswer
from busd.wire.bus_address import BusAddress
from busd.wire.connection import Connection
from busd.wire.driver import scheduler
from busd.wire.flushing import flush_touched

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("busd.client")

WatchLine = Callable[[bool], None]
_HANDSHAKE_SECONDS = 10.0
_SWEEP_SECONDS = 0.25


class Caller:
    """One line at a time: opened, initialized, and opened again when it is lost.

    `introduce` initializes a line that was just opened. `on_change` is called when the line was
    opened, closed or permanently refused. `watchers` are callbacks of the program, called when the
    line is lost (False) and when it is open again (True).
    """

    def __init__(
        self,
        name: str,
        address: BusAddress,
        tls: ssl.SSLContext | None,
        timeout_seconds: float,
        take: TakeMessage,
        introduce: Callable[[Line], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        self._name = name
        self.address = address
        self.timeout_seconds = timeout_seconds
        self.line: Line | None = None
        self.failure: BusdError | None = None  # why the bus has refused us permanently
        self.is_closed = True
        self._tls = tls
        self._take = take
        self._introduce = introduce
        self._on_change = on_change
        self.watchers: list[WatchLine] = []
        self._touched: list[Connection] = []
        self._is_flush_due = False

    # Life

    async def open(self, tasks: TaskGroup) -> None:
        """Open the first line, or raise the reason for the failure; then keep it open."""
        self._schedule = scheduler()
        self._changed = anyio.Event()
        self._tasks = tasks
        self.failure = None
        self.is_closed = False
        await self._open()
        tasks.start_soon(self._stay_connected)
        tasks.start_soon(self._sweep)

    async def close(self) -> None:
        line, self.line = self.line, None
        self.is_closed = True
        self._announce()  # wake those who wait for it
        if line is not None and line.is_open:
            await self._hang_up(line)

    async def _hang_up(self, line: Line) -> None:
        """Close the line when the bus has read everything we sent."""
        try:
            with anyio.move_on_after(LIMITS.linger_seconds, shield=True):
                if line.calls or line.has_abandoned:
                    # It would keep the line open for answers that nobody awaits.
                    await self.call_on(line, "ping", {}, inf)
                else:
                    line.close()
                    await line.gone.wait()
        except BusdError:
            pass  # it has closed the line already
        line.close()
        line.connection.abort("closed")

    async def wait_for_end(self) -> None:
        """Wait until we are closed; raise if the bus refuses us permanently."""
        while self.failure is None and not self.is_closed:
            await self._changed.wait()
        if self.failure is not None:
            raise self.failure

    async def _open(self) -> None:
        line = None
        with anyio.move_on_after(min(_HANDSHAKE_SECONDS, self.timeout_seconds)):
            line = await open_line(self.address, self._tasks, self._touched, self._take, self._tls)
            await self._initialize(line)
            self.line = line
            self._announce()
            return
        if line is None:
            raise BusUnreachable(f"cannot reach a bus at {self.address}: no connection in time")
        raise NoAnswer(f"the server at {self.address} did not answer in time")

    async def _initialize(self, line: Line) -> None:
        try:
            await self._introduce(line)
        except ConnectionLost:
            raise BusUnreachable(f"no bus at {self.address}: {line.reason}") from None
        except BaseException:
            line.connection.abort("refused")
            raise

    async def _stay_connected(self) -> None:
        """Reconnect whenever the line is lost, until we close it or the bus refuses us."""
        while self.line is not None:
            await self.line.lost.wait()
            if self.line is None:
                return  # we closed it ourselves
            log.warning("connection to %s lost: %s; reconnecting", self.address, self.line.reason)
            self.line = None
            self._notify_watchers(is_open=False)
            for pause in pauses():
                await anyio.sleep(pause)
                try:
                    await self._open()
                    log.info("connection to %s restored", self.address)
                    self._notify_watchers(is_open=True)
                    break
                except (BusUnreachable, NoAnswer):
                    continue
                except CallRefused as refusal:
                    if refusal.code == Busy.code:
                        continue
                    self.failure = refusal
                    self._announce()
                    return

    def _notify_watchers(self, *, is_open: bool) -> None:
        for function in self.watchers:
            try:
                function(is_open)
            except Exception:  # as in a handler: a bug of the program; the line stays open
                log.exception("%r failed", function)

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        self._on_change()

    async def _sweep(self) -> None:
        """Fail calls that the bus has not answered in time."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            calls = self.line.calls if self.line is not None else {}
            for call in [each for each in calls.values() if each.deadline <= now]:
                call.fail(NoAnswer(f"the bus did not answer in time: {call.what}"))

    # Calls

    async def call(self, method: str, params: Any, timeout_seconds: float | None, what: str) -> Raw:
        """Call a method over the current line, or else the next one; return its result."""
        return await self.call_until(self.deadline_after(timeout_seconds), method, params, what)

    def deadline_after(self, timeout_seconds: float | None) -> float:
        """Return the time at which a call that begins now has to be answered."""
        seconds = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        return time.monotonic() + seconds

    async def call_until(self, deadline: float, method: str, params: Any, what: str) -> Raw:
        """Call a method over the current line, or else the next one."""
        line = self.line
        if line is None or not line.is_open:
            line = await self.wait_for_line(deadline)
        return await self.call_on(line, method, params, deadline, what)

    async def call_on(
        self, line: Line, method: str, params: Any, deadline: float, what: str = ""
    ) -> Raw:
        """Call a method on this line only."""
        call_id, pending = line.call(method, params, what or method, deadline)
        self.flush_soon()
        try:
            return await pending.wait()
        finally:
            if line.calls.pop(call_id, None):
                line.has_abandoned = True

    async def wait_for_line(self, deadline: float) -> Line:
        """Return the open line; wait until it is open again if necessary."""
        with anyio.move_on_after(deadline - time.monotonic()):
            while self.line is None or not self.line.is_open:
                if self.is_closed:
                    raise BusUnreachable(f"{self._name} is not connected: nothing was sent")
                if self.failure is not None:
                    raise self.failure
                await self._changed.wait()
            return self.line
        raise BusUnreachable(f"no bus at {self.address}: nothing was sent")

    def flush_soon(self) -> None:
        """Write out in the next round of the loop, together with everything this round sends."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._schedule(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._touched:
            flush_touched(self._touched, self._touched[0].turns)
        if self.line is not None:
            self.line.note_flushed()
