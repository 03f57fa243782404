"""The spawner for hosts with systemd: each worker is a transient unit, all are in one slice."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from busd.keeper.launch import Launch
from busd.keeper.tree import state_id_of
from busd.supervise.logs import SystemdJournal
from busd.supervise.systemctl import ManagerSilent, ServiceManager, complaint
from busd.supervise.systemd_guard import Guards
from busd.supervise.systemd_limits import SLICE, limits_in_force, set_ceiling
from busd.supervise.systemd_unit import UnitFiles, command_of, unit_name, unit_prefix, why_not
from busd.supervise.systemd_worker import (
    SHOWN,
    SystemdWatch,
    SystemdWorker,
    is_alive,
    main_pid,
)
from busd.supervise.worker import SpawnFailed, SupervisorSettings

_STOP_GRACE_SECONDS = 15.0
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
        state_id = state_id_of(self._state)
        self._prefix = unit_prefix(state_id)
        self._guards = Guards(self._manager, state_id, self._folder)
        self._watch = SystemdWatch(self._manager, self._guards, self._prefix, self._workers)
        try:
            await set_ceiling(self._manager, self._settings)
            self._version = await self._manager.version()
            await self._find_earlier()
            await self._guards.start(self._settings)
        except ManagerSilent as problem:
            raise SpawnFailed(f"the service manager does not do it: {problem}") from None
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._watch.run)
        if self._found:
            self._tasks.start_soon(self._end_unclaimed)
        return self

    async def __aexit__(self, *problem: object) -> None:
        with anyio.CancelScope(shield=True):
            has_none = not (self._workers or self._found)
            if self._settings.when_bus_stops == "stop" or has_none:
                await self._stop_all()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)  # it must not wrap our caller's problem

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
            shown = await self._manager.show(unit, SHOWN)
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
        worker = SystemdWorker(launch.name, unit, files, logs, self._stop, self._journal)
        worker.stop_seconds = launch.stop_seconds
        worker.pid = main_pid(shown)
        worker.control_group = shown.get("ControlGroup", "")
        worker.limits = limits_in_force(worker.control_group, launch, worker.pid)
        worker.guard = guard
        self._workers[launch.name] = worker
        return worker

    async def _run_unit(
        self, launch: Launch, unit: str, files: UnitFiles, command: list[str]
    ) -> str:
        """Run it, bound to a guard; one that has died is replaced. Return the guard's unit."""
        guard = self._guards.unit
        done = await self._try_unit(launch, unit, files, command, guard)
        endings = files.new_endings()
        if done.returncode != 0 and not endings:
            await self._guards.revive()
            if guard != self._guards.unit:
                guard = self._guards.unit
                done = await self._try_unit(launch, unit, files, command, guard)
                endings = files.new_endings()
        files.forget_position()
        if done.returncode != 0 and not endings:
            raise ManagerSilent(complaint(done))
        if done.returncode != 0:
            # It has run and ended already, which is reported; unless systemd could not even run it.
            problem = why_not(endings[0], launch)
            if problem is not None:
                raise SpawnFailed(problem)
        return guard

    async def _try_unit(
        self, launch: Launch, unit: str, files: UnitFiles, command: list[str], guard: str
    ) -> CompletedProcess[bytes]:
        has_journal = self._journal is not None
        properties = files.properties(launch, self._version, has_journal=has_journal)
        properties += [f"BindsTo={guard}", f"After={guard}"]
        return await self._manager.run(
            "systemd-run",
            f"--{self._manager.flavour}",
            "--quiet",
            "--collect",
            f"--unit={unit}",
            f"--slice={SLICE}",
            f"--description=worker {launch.name}",
            *(f"--property={item}" for item in properties),
            "--",
            *command,
        )

    async def adopt(self, name: str, unit: str) -> SystemdWorker | None:
        """Take over the unit of a worker that an earlier daemon started."""
        own = unit_name(self._prefix, name)
        if unit not in ("", own) or own not in self._found:
            return None
        unit = own
        self._found.discard(unit)
        try:
            states = await self._manager.states(unit)
            shown = await self._manager.show(unit, SHOWN)
        except ManagerSilent:
            return None
        if not is_alive(states.get(unit)):
            return None
        files = UnitFiles(self._folder, unit)
        files.skip()
        logs = Path(shown.get("WorkingDirectory", "")) / "logs"
        journal = self._journal if shown.get("StandardOutput") == "journal" else None
        worker = SystemdWorker(name, unit, files, logs, self._stop, journal)
        worker.pid = main_pid(shown)
        worker.is_down = worker.pid is None
        worker.control_group = shown.get("ControlGroup", "")
        worker.limits = limits_in_force(worker.control_group)
        worker.stop_seconds = self._settings.stop_seconds
        worker.guard = shown.get("BindsTo", "")
        self._workers[name] = worker
        return worker

    async def _stop(self, worker: SystemdWorker) -> None:
        """End a worker; systemd ends all that it has started."""
        worker.is_stopping = True  # from now on the watcher looks away
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
            await self._manager.ask("stop", *units, seconds=seconds, is_slow=True)
        except ManagerSilent as problem:
            return str(problem)
        return ""

    async def _stop_all(self) -> None:
        """End all workers at once, and whatever else is bound to the guard."""
        ending = [worker for worker in self._workers.values() if not worker.is_stopping]
        for worker in ending:
            worker.is_stopping = True
        await self._stop_units([worker.unit for worker in ending])
        for worker in ending:
            self._watch.end(worker, "stopped", "")
        await self._stop_units(self._guards.units)
        self._guards.forget()
