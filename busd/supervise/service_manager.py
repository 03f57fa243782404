"""The service manager, asked over D-Bus: properties and states of units, start and stop.

Root asks the manager of the system, all others that of their user.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
from anyio.abc import TaskStatus
from jeepney import DBusAddress

from busd.supervise.dbus import Body
from busd.supervise.manager_link import (
    ANSWER_SECONDS,
    MANAGER,
    NAME,
    ROOT,
    LinkLost,
    ManagerLink,
    ManagerSilent,
    Refused,
)

Flavour = Literal["system", "user"]
Property = tuple[str, tuple[str, Any]]  # a name, and a signature with its value; Any: fits that
UNLIMITED = 2**64 - 1  # what systemd calls `infinity`

_PROBE_SECONDS = 3.0
_RETRY_SECONDS = 0.2
_PROPERTIES = "org.freedesktop.DBus.Properties"
_UNITS = f"{ROOT}/unit/"
_OF_UNITS = ("ActiveState", "BindsTo", "Job")  # all other properties are those of services
_NO_SUCH_UNIT = f"{NAME}.NoSuchUnit"


class UnitState(NamedTuple):
    """What the manager says of a unit."""

    active: str  # active, activating, inactive, failed ...
    sub: str  # running, auto-restart, dead ...
    has_job: bool

    @property
    def is_running(self) -> bool:
        return (self.active, self.sub) == ("active", "running")

    @property
    def is_alive(self) -> bool:
        """Whether it runs or will by itself: just before a restart it is inactive, with a job."""
        return self.has_job or self.active not in ("inactive", "failed")


class ServiceManager:
    """The manager of the system, or of one user."""

    def __init__(self, flavour: Flavour, *, runtime: Path | None = None) -> None:
        self.flavour = flavour
        self.socket = _socket_of(flavour, runtime)
        self._link = ManagerLink(self.socket)

    def notify(self, on_unit: Callable[[str], None], on_connection: Callable[[], None]) -> None:
        """Register callbacks: a unit has changed; all may have, as signals may be missing."""

        def on_signal(path: str, member: str, body: Body) -> None:
            if member == "UnitRemoved":
                on_unit(body[0])
            elif member == "PropertiesChanged" and path.startswith(_UNITS):
                on_unit(_unit_of(path))

        self._link.notify(on_signal, on_connection)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a connection to it open."""
        await self._link.serve(task_status=task_status)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Keep a connection open within the block, unless `serve` runs."""
        async with self._link.opened():
            yield

    # -- units ---------------------------------------------------------------------------------

    async def probe(self) -> str:
        """Return its version; raise ManagerSilent, at once if nobody could connect to it."""
        try:
            self.socket.stat()
        except OSError as problem:
            raise ManagerSilent(f"{self.socket}: {problem.strerror}") from None
        if not os.access(self.socket, os.W_OK, effective_ids=True):
            raise ManagerSilent(f"{self.socket}: {os.strerror(errno.EACCES)}")
        async with self.opened():
            return await self._version_text(_PROBE_SECONDS)

    async def version(self) -> int:
        """Return its version as a number; 0 if it does not say."""
        found = re.search(r"\d+", await self._version_text())
        return int(found[0]) if found else 0

    async def _version_text(self, seconds: float = ANSWER_SECONDS) -> str:
        address = DBusAddress(ROOT, NAME, _PROPERTIES)
        asked = (f"{NAME}.Manager", "Version")
        ((_, text),) = await self._link.call(address, "Get", "ss", asked, seconds=seconds)
        return str(text)

    async def show(self, unit: str, names: Iterable[str]) -> dict[str, Any]:
        """Return properties of a unit; Any: each has a type of its own."""
        shown = {}
        for name in names:
            interface = "Unit" if name in _OF_UNITS else "Service"
            asked = (f"{NAME}.{interface}", name)
            ((_, shown[name]),) = await self._link.call(_address_of(unit), "Get", "ss", asked)
        return shown

    async def states(self, pattern: str) -> dict[str, UnitState]:
        """Return the units that match, each with its state."""
        return _states(
            await self._link.call(MANAGER, "ListUnitsByPatterns", "asas", ([], [pattern]))
        )

    async def states_of(self, units: list[str]) -> dict[str, UnitState]:
        """Return the states of units; one that is gone is not alive."""
        return _states(await self._link.call(MANAGER, "ListUnitsByNames", "as", (units,)))

    async def set_properties(self, unit: str, properties: list[Property]) -> None:
        """Set properties of a unit until the next boot."""
        await self._link.call(MANAGER, "SetUnitProperties", "sba(sv)", (unit, True, properties))

    # -- start and stop ------------------------------------------------------------------------

    async def start_unit(self, unit: str, properties: list[Property]) -> None:
        """Start a transient unit, and wait until it runs; raise ManagerSilent if it does not."""
        body: Body = (unit, "fail", properties, [])
        result = await self._link.run_job(
            "StartTransientUnit", "ssa(sv)a(sa(sv))", body, seconds=ANSWER_SECONDS
        )
        if result != "done":
            raise ManagerSilent(f"the job to start {unit} ended with: {result}")

    async def stop_units(self, units: Iterable[str], seconds: float) -> None:
        """Stop units and wait until they have; raise ManagerSilent.

        What a lost connection has left open is asked for again: to stop a unit twice does no harm.
        """
        left = set(units)
        problems: list[ManagerSilent] = []
        with anyio.move_on_after(seconds):
            while left:
                async with self.opened(), anyio.create_task_group() as tasks:
                    for unit in left.copy():
                        tasks.start_soon(self._stop_unit, unit, left, problems)
                if left:
                    await anyio.sleep(_RETRY_SECONDS)
        if left:
            raise ManagerSilent(f"{min(left)} has not stopped in {seconds:g} s")
        if problems:
            raise problems[0]

    async def _stop_unit(self, unit: str, left: set[str], problems: list[ManagerSilent]) -> None:
        try:
            # Who calls has a time limit.
            result = await self._link.run_job("StopUnit", "ss", (unit, "replace"), seconds=math.inf)
            if result != "done":
                problems.append(ManagerSilent(f"the job to stop {unit} ended with: {result}"))
        except LinkLost:
            return
        except Refused as problem:
            if problem.name != _NO_SUCH_UNIT:
                problems.append(problem)
        except ManagerSilent as problem:
            problems.append(problem)
        left.discard(unit)


async def find_manager() -> tuple[ServiceManager | None, str]:
    """Find a manager that answers: of the system for root, else of the user; and say why."""
    if not _is_booted():
        return None, "this host was not booted with systemd"
    flavours: list[Flavour] = ["system", "user"] if os.geteuid() == 0 else ["user"]
    reason = ""
    for flavour in flavours:
        manager = ServiceManager(flavour)
        try:
            version = await manager.probe()
        except ManagerSilent as problem:
            reason = f"the {flavour}'s manager does not answer: {problem}"
        else:
            return manager, f"the {flavour}'s manager answers: {version}"
    return None, reason


def _is_booted() -> bool:
    return Path("/run/systemd/system").is_dir()


def _socket_of(flavour: Flavour, runtime: Path | None) -> Path:
    if flavour == "system":
        return Path("/run/systemd/private")
    found = runtime or Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}")
    return found / "systemd/private"


def _states(reply: Body) -> dict[str, UnitState]:
    return {row[0]: UnitState(row[3], row[4], row[7] != 0) for row in reply[0]}


def _address_of(unit: str) -> DBusAddress:
    escaped = re.sub(r"[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):02x}", unit)
    return DBusAddress(f"{_UNITS}{escaped}", NAME, _PROPERTIES)


def _unit_of(path: str) -> str:
    escaped = path.removeprefix(_UNITS)
    return re.sub(r"_([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), escaped)
