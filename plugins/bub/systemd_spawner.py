"""The spawner for hosts with systemd: each worker is a transient unit, all are in one slice."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from busd import AgentsSettings
from busd_plugins.bub.journal import Journal
from busd_plugins.bub.keeper.family import household_of
from busd_plugins.bub.spawner import Launch, Report, SpawnFailed
from busd_plugins.bub.systemctl import ManagerSilent, ServiceManager, last_line
from busd_plugins.bub.systemd_guard import forget_guard, start_guard
from busd_plugins.bub.systemd_limits import SLICE, limits_in_force, set_ceiling
from busd_plugins.bub.systemd_unit import (
    Ending,
    UnitFiles,
    command_of,
    unit_name,
    unit_prefix,
    why_not,
)
from busd_plugins.bub.systemd_worker import SystemdWorker, look_at_files

_LOOK_SECONDS = 0.25  # at the files in which systemd notes how a worker ended
_FLOOD_LOOK_SECONDS = 0.02  # while a worker prints without end: its log is cut each time
_ASK_LOOKS = 4  # every so many looks the manager is asked, too: one question for all units
_SILENT_LOOKS = 40
_STOP_GRACE_SECONDS = 15.0
_SHOWN = ("MainPID", "ControlGroup", "WorkingDirectory", "StandardOutput")
_NOT_KEPT = "when_bus_stops: workers that run already end with the bus; restart them to keep them"


class SystemdSpawner:
    """Starts workers as units; entered and left by the same task."""

    name = "systemd"

    def __init__(
        self,
        *,
        state: Path,
        agents: AgentsSettings,
        manager: ServiceManager,
        journal: Journal | None = None,  # without it workers print into files
    ) -> None:
        self._state = state.resolve()
        self._folder = self._state / "units"
        self._agents = agents
        self._manager = manager
        self._journal = journal
        self._version = 0
        self._workers: dict[str, SystemdWorker] = {}
        self._starting: set[str] = set()
        self._found: set[str] = set()  # units of an earlier daemon that nobody has adopted
        self._tasks: TaskGroup
        self._prefix = ""
        self._household = 0
        self._guard = ""
        self._old_guards: set[str] = set()  # from before a reload, of workers started then

    async def __aenter__(self) -> SystemdSpawner:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._household = household_of(self._state)
        self._prefix = unit_prefix(self._household)
        try:
            await set_ceiling(self._manager, self._agents)
            self._version = await self._manager.version()
            await self._take_stock()
            await self._be_guarded()
        except ManagerSilent as problem:
            raise SpawnFailed(f"the service manager does not do it: {problem}") from None
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._watch)
        if self._found:
            self._tasks.start_soon(self._end_unclaimed)
        return self

    async def __aexit__(self, *problem: object) -> None:
        with anyio.CancelScope(shield=True):
            has_none = not (self._workers or self._found)
            if self._agents.when_bus_stops == "stop" or has_none:
                await self._stop_all()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)  # it must not wrap our caller's problem

    async def reload(self, agents: AgentsSettings) -> list[str]:
        """Go by other settings from now on; what a running worker was bound to stays with it."""
        before, self._agents = self._agents, agents
        problems = []
        try:
            await set_ceiling(self._manager, agents)
            if before.when_bus_stops != agents.when_bus_stops:
                self._old_guards.add(self._guard)
                await self._be_guarded()
                if self._workers and agents.when_bus_stops == "keep":
                    problems.append(_NOT_KEPT)
        except ManagerSilent as problem:
            problems.append(f"the service manager does not do it: {problem}")
        return problems

    # -- before the first worker ---------------------------------------------------------------

    async def _be_guarded(self) -> None:
        self._guard = await start_guard(self._manager, self._household, self._folder, self._agents)
        self._old_guards.discard(self._guard)

    async def _take_stock(self) -> None:
        """See what an earlier daemon has left; unless it is to be kept, that ends now."""
        states = await self._manager.states(f"{self._prefix}*.service")
        if self._agents.when_bus_stops == "stop":
            await self._stop_units(list(states))
        else:
            self._found = set(states)

    async def _end_unclaimed(self) -> None:
        await anyio.sleep(self._agents.adopt_seconds)
        await self._stop_units(list(self._found))
        self._found.clear()

    # -- start and stop ------------------------------------------------------------------------

    async def start(self, launch: Launch) -> SystemdWorker:
        """Start a worker as a unit."""
        if launch.client_id in self._workers or launch.client_id in self._starting:
            raise SpawnFailed(f"{launch.client_id} has been started already")
        command = command_of(launch)
        unit = unit_name(self._prefix, launch.client_id)
        files = UnitFiles(self._folder, unit)
        self._starting.add(launch.client_id)
        try:
            has_journal = self._journal is not None
            await to_thread.run_sync(partial(files.prepare, launch, has_journal=has_journal))
            await self._run_unit(launch, unit, files, command)
            shown = await self._manager.show(unit, _SHOWN)
        except BaseException as problem:
            with anyio.CancelScope(shield=True):
                await self._stop_units([unit])  # it may try again by itself
            files.remove()
            if isinstance(problem, (ManagerSilent, OSError)):
                raise SpawnFailed(f"systemd did not start it: {problem}") from None
            raise
        finally:
            self._starting.discard(launch.client_id)
        logs = launch.workspace / "logs"
        worker = SystemdWorker(launch.client_id, unit, files, logs, self._stop, self._journal)
        worker.stop_seconds = launch.stop_seconds
        worker.pid = int(shown.get("MainPID") or 0)
        worker.limits = limits_in_force(shown.get("ControlGroup", ""), launch, worker.pid)
        self._workers[launch.client_id] = worker
        return worker

    async def _run_unit(
        self, launch: Launch, unit: str, files: UnitFiles, command: list[str]
    ) -> None:
        has_journal = self._journal is not None
        properties = files.properties(launch, self._version, has_journal=has_journal)
        properties += [f"BindsTo={self._guard}", f"After={self._guard}"]
        done = await self._manager.run(
            "systemd-run",
            f"--{self._manager.flavour}",
            "--quiet",
            "--collect",
            f"--unit={unit}",
            f"--slice={SLICE}",
            f"--description=worker {launch.client_id}",
            *(f"--property={item}" for item in properties),
            "--",
            *command,
        )
        if done.returncode == 0:
            return
        endings = files.new_endings()
        files.forget_position()
        if not endings:
            raise ManagerSilent(last_line(done.stderr))
        # It has run and ended already, which is reported; unless systemd could not even run it.
        problem = why_not(endings[0], launch)
        if problem is not None:
            raise SpawnFailed(problem)

    async def adopt(self, client_id: str, unit: str) -> SystemdWorker | None:
        """Take over the unit of a worker that an earlier daemon started."""
        own = unit_name(self._prefix, client_id)
        if unit not in ("", own) or own not in self._found:
            return None
        unit = own
        self._found.discard(unit)
        try:
            states = await self._manager.states(unit)
            shown = await self._manager.show(unit, _SHOWN)
        except ManagerSilent:
            return None
        if not is_alive(states.get(unit)):
            return None
        files = UnitFiles(self._folder, unit)
        files.skip()
        logs = Path(shown.get("WorkingDirectory", "")) / "logs"
        journal = self._journal if shown.get("StandardOutput") == "journal" else None
        worker = SystemdWorker(client_id, unit, files, logs, self._stop, journal)
        worker.pid = int(shown.get("MainPID") or 0)
        worker.is_down = worker.pid is None
        worker.limits = limits_in_force(shown.get("ControlGroup", ""))
        worker.stop_seconds = self._agents.stop_seconds
        self._workers[client_id] = worker
        return worker

    async def _stop(self, worker: SystemdWorker) -> None:
        """End a worker; systemd ends all that it has started."""
        worker.is_stopping = True  # from now on the watcher looks away
        seconds = worker.stop_seconds + _STOP_GRACE_SECONDS
        with anyio.CancelScope(shield=True):
            problem = await self._stop_units([worker.unit], seconds)
        endings = worker.files.new_endings()
        self._end(worker, "stopped", endings[-1].reason if endings else problem)

    async def _stop_units(self, units: list[str], seconds: float | None = None) -> str:
        """Stop units and wait until they have; gives why not, or nothing."""
        if not units:
            return ""
        if seconds is None:
            seconds = self._agents.stop_seconds + _STOP_GRACE_SECONDS
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
            self._end(worker, "stopped", "")
        guards = [self._guard, *self._old_guards]
        await self._stop_units(guards)
        for guard in guards:
            forget_guard(self._folder, guard)

    # -- watching ------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Report what happens to the workers, from what systemd notes and what it says."""
        looks = silent = 0
        while True:
            is_flooded = any(worker.is_flooding for worker in self._workers.values())
            await anyio.sleep(_FLOOD_LOOK_SECONDS if is_flooded else _LOOK_SECONDS)
            if not self._workers:
                continue
            looks += 1
            has_news = await self._read_endings()
            if not has_news and looks % _ASK_LOOKS:
                continue
            silent = 0 if await self._look() else silent + 1
            if silent * _ASK_LOOKS > _SILENT_LOOKS:
                self._give_up()

    async def _read_endings(self) -> bool:
        """Report the runs that have ended; True if the manager has to be asked what comes next."""
        watched = [worker for worker in self._workers.values() if not worker.is_stopping]
        found = await to_thread.run_sync(look_at_files, watched)
        async with anyio.create_task_group() as tasks:
            for worker, endings in found:
                tasks.start_soon(_report_endings, worker, endings)
        return any(worker.is_down for worker in watched)

    async def _look(self) -> bool:
        """Ask for the state of all units; False if the manager does not answer."""
        watched = [worker for worker in self._workers.values() if not worker.is_stopping]
        try:
            states = await self._manager.states(f"{self._prefix}*.service")
            for worker in watched:
                await self._compare(worker, states.get(worker.unit))
        except ManagerSilent:
            return False
        return True

    async def _compare(self, worker: SystemdWorker, state: str | None) -> None:
        if worker.inbox.ended.is_set() or worker.is_stopping:
            return
        if state == "active/running" and worker.is_down:
            shown = await self._manager.show(worker.unit, _SHOWN)
            worker.pid = int(shown.get("MainPID") or 0)
            worker.is_down = worker.pid is None
            if not worker.is_down:
                worker.inbox.put(Report("restarted", pid=worker.pid))
        elif not is_alive(state):
            await self._read_endings()
            await self._conclude(worker)

    async def _conclude(self, worker: SystemdWorker) -> None:
        """A unit is no more: say whether it ended well."""
        ending = worker.last_ending
        if ending is not None and ending.is_clean:
            self._end(worker, "stopped", ending.reason)
            return
        reason = "its unit is gone" if ending is None else ending.reason
        self._end(worker, "failed", reason, tuple(await worker.last_lines()))

    def _end(
        self, worker: SystemdWorker, kind: str, reason: str, lines: tuple[str, ...] = ()
    ) -> None:
        if self._workers.get(worker.client_id) is worker:
            del self._workers[worker.client_id]
        worker.pid = None
        worker.files.remove()
        worker.inbox.put(Report("failed" if kind == "failed" else "stopped", reason, lines))

    def _give_up(self) -> None:
        for worker in list(self._workers.values()):
            self._end(worker, "failed", "the service manager does not answer")


async def _report_endings(worker: SystemdWorker, endings: list[Ending]) -> None:
    lines = tuple(await worker.last_lines())
    for ending in endings:
        worker.on_ending(ending, lines)


def is_alive(state: str | None) -> bool:
    """Tell whether a unit runs or will by itself."""
    return state is not None and state.partition("/")[0] not in ("inactive", "failed")
