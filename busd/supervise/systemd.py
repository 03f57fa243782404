"""The spawner for hosts with systemd: each worker is a transient unit, all are in one slice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from busd.keeper.launch import Launch
from busd.keeper.tree import state_id_of
from busd.supervise.logs import SystemdJournal
from busd.supervise.manager_link import ManagerSilent
from busd.supervise.service_manager import ServiceManager
from busd.supervise.systemd_guard import Guards
from busd.supervise.systemd_limits import limits_in_force, set_ceiling
from busd.supervise.systemd_unit import (
    UnitFiles,
    command_of,
    exec_property,
    unit_name,
    unit_prefix,
    why_not,
    write_scripts,
)
from busd.supervise.systemd_watch import SystemdWatch
from busd.supervise.systemd_worker import Event, State, SystemdWorker
from busd.supervise.worker import SpawnFailed, SupervisorSettings

_STOP_GRACE_SECONDS = 15.0
_STARTED = ("MainPID", "ControlGroup")
_ADOPTED = (*_STARTED, "WorkingDirectory", "StandardOutput", "BindsTo")
_NOT_KEPT = "when_bus_stops: workers that run already end with the bus; restart them to keep them"


class SystemdSpawner:
    """Starts workers as units; entered and left by the same task."""

    name = "systemd"

    def __init__(
        self,
        *,
        state: Path,
        settings: SupervisorSettings,
        manager: ServiceManager,
        journal: SystemdJournal | None = None,  # without it workers print into files
    ) -> None:
        self._state = state.resolve()
        self._folder = self._state / "units"
        self._settings = settings
        self._manager = manager
        self._journal = journal
        self._version = 0
        self._guards: Guards
        self._watch: SystemdWatch
        self._workers: dict[str, SystemdWorker] = {}
        self._starting: set[str] = set()
        self._found: set[str] = set()  # units of an earlier daemon that nobody has adopted
        self._tasks: TaskGroup
        self._prefix = ""

    async def __aenter__(self) -> SystemdSpawner:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_scripts(self._folder)
        state_id = state_id_of(self._state)
        self._prefix = unit_prefix(state_id)
        self._guards = Guards(self._manager, state_id, self._folder)
        self._watch = SystemdWatch(self._manager, self._guards, self._workers)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            await self._tasks.start(self._manager.serve)
            await self._prepare()
        except BaseException as problem:
            await self._end_tasks()
            if isinstance(problem, ManagerSilent):
                raise SpawnFailed(f"the service manager does not do it: {problem}") from None
            raise
        self._tasks.start_soon(self._watch.run)
        if self._found:
            self._tasks.start_soon(self._end_unclaimed)
        return self

    async def __aexit__(self, *problem: object) -> None:
        # If our caller was cancelled so were the tasks: stopping gets a connection of its own.
        try:
            await self._end_tasks()
        finally:
            has_none = not (self._workers or self._found)
            if self._settings.when_bus_stops == "stop" or has_none:
                with anyio.CancelScope(shield=True):
                    await self._stop_all()

    async def _end_tasks(self) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)  # it must not wrap a caller's problem

    async def _prepare(self) -> None:
        await set_ceiling(self._manager, self._settings)
        self._version = await self._manager.version()
        await self._find_earlier()
        await self._guards.start(self._settings)

    async def reload(self, settings: SupervisorSettings) -> list[str]:
        """Apply other settings; what a running worker was bound to stays with it."""
        before, self._settings = self._settings, settings
        problems = []
        try:
            await set_ceiling(self._manager, settings)
            if before.when_bus_stops != settings.when_bus_stops:
                await self._guards.start(settings)
                if self._workers and settings.when_bus_stops == "keep":
                    problems.append(_NOT_KEPT)
        except ManagerSilent as problem:
            problems.append(f"the service manager does not do it: {problem}")
        return problems

    # -- before the first worker ---------------------------------------------------------------

    async def _find_earlier(self) -> None:
        """Find the units that an earlier daemon has left; stop them unless they are to be kept."""
        states = await self._manager.states(f"{self._prefix}*.service")
        if self._settings.when_bus_stops == "stop":
            await self._stop_units(list(states))
        else:
            self._found = set(states)

    async def _end_unclaimed(self) -> None:
        await anyio.sleep(self._settings.adopt_seconds)
        await self._stop_units(list(self._found))
        self._found.clear()

    # -- start and stop ------------------------------------------------------------------------

    async def start(self, launch: Launch) -> SystemdWorker:
        """Start a worker as a unit."""
        if launch.name in self._workers or launch.name in self._starting:
            raise SpawnFailed(f"{launch.name} has been started already")
        command = command_of(launch)
        unit = unit_name(self._prefix, launch.name)
        files = UnitFiles(self._folder, unit)
        self._starting.add(launch.name)
        try:
            has_journal = self._journal is not None
            await to_thread.run_sync(partial(files.prepare, launch, has_journal=has_journal))
            guard = await self._run_unit(launch, unit, files, command)
            shown = await self._manager.show(unit, _STARTED)
        except BaseException as problem:
            with anyio.CancelScope(shield=True):
                await self._stop_units([unit])  # it may try again by itself
            files.remove()
            if isinstance(problem, (ManagerSilent, OSError)):
                raise SpawnFailed(f"systemd did not start it: {problem}") from None
            raise
        finally:
            self._starting.discard(launch.name)
        logs = launch.directory / "logs"
        # One that has ended already counts as running: its end is still to be reported.
        worker = SystemdWorker(
            launch.name, unit, files, logs, self._stop, self._journal, State.RUNNING
        )
        worker.stop_seconds = launch.stop_seconds
        worker.pid = shown["MainPID"] or None
        worker.control_group = shown["ControlGroup"]
        worker.limits = limits_in_force(worker.control_group, launch, worker.pid)
        worker.guard = guard
        self._workers[launch.name] = worker
        self._watch.look_at(worker)
        return worker

    async def _run_unit(
        self, launch: Launch, unit: str, files: UnitFiles, command: list[str]
    ) -> str:
        """Run it, bound to a guard; one that has died is replaced. Return the guard's unit."""
        guard = self._guards.unit
        problem = await self._try_unit(launch, unit, files, command, guard)
        endings = files.new_endings()
        if problem and not endings:
            await self._guards.revive()
            if guard != self._guards.unit:
                guard = self._guards.unit
                problem = await self._try_unit(launch, unit, files, command, guard)
                endings = files.new_endings()
        files.forget_position()
        if problem and not endings:
            raise ManagerSilent(problem)
        if problem:
            # It has run and ended already, which is reported; unless systemd could not even run it.
            reason = why_not(endings[0], launch)
            if reason is not None:
                raise SpawnFailed(reason)
        return guard

    async def _try_unit(
        self, launch: Launch, unit: str, files: UnitFiles, command: list[str], guard: str
    ) -> str:
        """Start a unit; return why it does not run, or nothing."""
        has_journal = self._journal is not None
        properties = files.properties(launch, self._version, guard, has_journal=has_journal)
        properties.append(exec_property("ExecStart", command))
        try:
            await self._manager.start_unit(unit, properties)
        except ManagerSilent as problem:
            return str(problem)
        return ""

    async def adopt(self, name: str, unit: str) -> SystemdWorker | None:
        """Adopt the unit of a worker that an earlier daemon started."""
        own = unit_name(self._prefix, name)
        if unit not in ("", own) or own not in self._found:
            return None
        unit = own
        self._found.discard(unit)
        try:
            states = await self._manager.states(unit)
            shown = await self._manager.show(unit, _ADOPTED)
        except ManagerSilent:
            return None
        if unit not in states or not states[unit].is_alive:
            return None
        files = UnitFiles(self._folder, unit)
        files.skip()
        logs = Path(shown["WorkingDirectory"]) / "logs"
        journal = self._journal if shown["StandardOutput"] == "journal" else None
        pid = shown["MainPID"] or None
        state = State.DOWN if pid is None else State.RUNNING
        worker = SystemdWorker(name, unit, files, logs, self._stop, journal, state)
        worker.pid = pid
        worker.control_group = shown["ControlGroup"]
        worker.limits = limits_in_force(worker.control_group)
        worker.stop_seconds = self._settings.stop_seconds
        worker.guard = next(iter(shown["BindsTo"]), "")
        self._workers[name] = worker
        self._watch.look_at(worker)
        return worker

    async def _stop(self, worker: SystemdWorker) -> None:
        """End a worker; systemd ends all that it has started."""
        seconds = worker.stop_seconds + _STOP_GRACE_SECONDS
        with anyio.CancelScope(shield=True):
            problem = await self._stop_units([worker.unit], seconds)
        endings = worker.files.new_endings()
        self._watch.end(worker, "stopped", endings[-1].reason if endings else problem)

    async def _stop_units(self, units: list[str], seconds: float | None = None) -> str:
        """Stop units and wait until they have; return why not, or nothing."""
        if not units:
            return ""
        if seconds is None:
            seconds = self._settings.stop_seconds + _STOP_GRACE_SECONDS
        try:
            await self._manager.stop_units(units, seconds)
        except ManagerSilent as problem:
            return str(problem)
        return ""

    async def _stop_all(self) -> None:
        """End all workers at once, and whatever else is bound to the guard."""
        # Not those that are being stopped already.
        workers = [each for each in self._workers.values() if each.move(Event.STOP_ASKED)]
        await self._stop_units([worker.unit for worker in workers])
        for worker in workers:
            self._watch.end(worker, "stopped", "")
        await self._stop_units(self._guards.units)
        self._guards.forget()
