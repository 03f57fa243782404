"""The spawner for hosts without systemd: workers are children of a keeper, one for each daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from busd.keeper.launch import Launch, encode_launch
from busd.keeper.lock import end_remains
from busd.keeper.log import FILE_NAME, read_last_lines
from busd.keeper.tree import is_descendant
from busd.supervise.keeper_link import (
    KeeperAnswer,
    KeeperGone,
    KeeperLink,
    connect_keeper,
    start_keeper,
)
from busd.supervise.sockets import children_of, has_socket, tree_of
from busd.supervise.worker import (
    Report,
    SpawnFailed,
    SupervisedProcess,
    SupervisorSettings,
    environment_of,
)

# For a keeper to act after all stop_seconds; then the kernel ends its workers.
_GRACE_SECONDS = 15.0
_KEEPER_LOST = "the keeper of the workers was killed"


class SubprocessWorker(SupervisedProcess):
    """A process that the keeper has started."""

    def __init__(
        self,
        link: KeeperLink,
        name: str,
        directory: Path,
        answer: KeeperAnswer,
        new_inits: Callable[[], list[int]],
    ) -> None:
        self._logs = directory / "logs"
        super().__init__(name, f"pid {answer.pid}", str(self._logs / FILE_NAME))
        self.limits = answer.limits
        self.pid = answer.pid
        self.init = answer.init  # the process that all of its own are below
        self._link = link
        self._new_inits = new_inits
        self._stop_seconds = answer.stop_seconds

    def owns(self, pid: int | None, socket: int | None) -> bool | None:
        # One that is being started again may be here before the report of it.
        roots = self._new_inits() if self.init is None else [self.init]
        if pid is not None:
            return any(is_descendant(pid, root) for root in roots)
        return socket is not None and any(has_socket(tree_of(root), socket) for root in roots)

    def on_report(self, report: Report, init: int | None = None) -> None:
        """Note what the keeper reports, and pass it on."""
        is_up = report.kind == "restarted"
        self.pid, self.init = (report.pid, init) if is_up else (None, None)
        if self.pid is not None:
            self.unit = f"pid {self.pid}"
        self.report(report)

    async def stop(self) -> None:
        if self.ended.is_set():
            return
        with anyio.move_on_after(self._stop_seconds + _GRACE_SECONDS) as patience:
            try:
                await self._link.ask("stop", worker=self.name)
            except KeeperGone:
                pass  # its end is reported
            await self.ended.wait()
        if patience.cancelled_caught:
            self._link.kill()
            await self.ended.wait()

    async def last_lines(self, count: int = 20) -> list[str]:
        return await to_thread.run_sync(read_last_lines, self._logs, count)


class SubprocessSpawner:
    """Starts workers through a keeper; entered and left by the same task."""

    name = "subprocess"

    def __init__(self, *, state: Path, settings: SupervisorSettings) -> None:
        self._state = state.resolve()
        self._settings = settings
        self._workers: dict[str, SubprocessWorker] = {}
        self._starting: set[str] = set()
        self._link: KeeperLink | None = None
        self._is_linking = anyio.Lock()
        self._tasks: TaskGroup

    async def __aenter__(self) -> SubprocessSpawner:
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            async with self._is_linking:
                await self._connect()
        except KeeperGone:
            await self._end_remains()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *problem: object) -> None:
        with anyio.CancelScope(shield=True):
            if self._link is not None and self._settings.when_bus_stops == "stop":
                await self._end(self._link)
        await self._close()

    async def _close(self) -> None:
        self._tasks.cancel_scope.cancel()
        # Not told of our caller's problem: it would be wrapped in a group.
        await self._tasks.__aexit__(None, None, None)

    async def _end(self, link: KeeperLink) -> None:
        """End the keeper with all workers."""
        with anyio.move_on_after(self._settings.stop_seconds + _GRACE_SECONDS) as patience:
            try:
                await link.send("end")
            except KeeperGone:
                pass
            await link.ended.wait()
        if patience.cancelled_caught:
            link.kill()
            await link.ended.wait()

    async def start(self, launch: Launch) -> SubprocessWorker:
        """Start a worker; a keeper that dies meanwhile is replaced, once."""
        if launch.name in self._workers or launch.name in self._starting:
            raise SpawnFailed(f"{launch.name} has been started already")
        self._starting.add(launch.name)
        try:
            return await self._start_with_retry(launch)
        finally:
            self._starting.discard(launch.name)

    async def _start_with_retry(self, launch: Launch) -> SubprocessWorker:
        try:
            return await self._start(launch)
        except KeeperGone:
            pass
        try:
            return await self._start(launch)
        except KeeperGone:
            raise SpawnFailed(f"{_KEEPER_LOST}, twice") from None

    async def _start(self, launch: Launch) -> SubprocessWorker:
        link = await self._living_link()
        started: list[SubprocessWorker] = []

        def register(answer: KeeperAnswer) -> None:
            if answer.error is None:
                answer = msgspec.structs.replace(answer, stop_seconds=launch.stop_seconds)
                worker = self._worker_of(link, launch.name, launch.directory, answer)
                self._workers[launch.name] = worker
                started.append(worker)

        try:
            whole = launch._replace(environment=environment_of(launch))
            answer = await link.ask("start", register, launch=encode_launch(whole))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):  # nobody wants it any more
                await self._cancel_start(link, launch.name)
            raise
        if not started:
            raise SpawnFailed(answer.error or "the keeper did not say why")
        return started[0]

    async def _cancel_start(self, link: KeeperLink, name: str) -> None:
        self._workers.pop(name, None)
        try:
            await link.ask("stop", worker=name)
        except KeeperGone:
            pass

    async def adopt(self, name: str, unit: str) -> SubprocessWorker | None:
        """Adopt a worker of an earlier daemon from the keeper; its pid may have changed."""
        link = self._link
        if link is None or (unit and not unit.startswith("pid ")):
            return None
        adopted: list[SubprocessWorker] = []

        def register(answer: KeeperAnswer) -> None:
            if answer.error is None:
                worker = self._worker_of(link, name, Path(answer.directory), answer)
                self._workers[name] = worker
                adopted.append(worker)

        try:
            await link.ask("adopt", register, worker=name)
        except KeeperGone:
            return None
        return adopted[0] if adopted else None

    async def reload(self, settings: SupervisorSettings) -> list[str]:
        """Apply other settings; the keeper is told what it has to do without us."""
        self._settings = settings
        async with self._is_linking:
            link = self._link
        if link is not None:
            try:
                await link.ask("settings", None, **self._keeper_settings())
            except KeeperGone:
                pass  # the next one is told when it starts
        return []

    def _worker_of(
        self, link: KeeperLink, name: str, directory: Path, answer: KeeperAnswer
    ) -> SubprocessWorker:
        def new_inits() -> list[int]:
            """Return those of which the keeper has not told us yet whose they are."""
            known = {worker.init for worker in self._workers.values()}
            return [pid for pid in children_of(link.pid) if pid not in known]

        return SubprocessWorker(link, name, directory, answer, new_inits)

    # -- the keeper ----------------------------------------------------------------------------

    async def _living_link(self) -> KeeperLink:
        """Return the connection to the keeper; start one if there is none."""
        async with self._is_linking:
            if self._link is None:
                await start_keeper(self._state)
                try:
                    await self._connect()
                except KeeperGone:
                    raise SpawnFailed("the keeper of the workers ended at once") from None
            assert self._link is not None
            return self._link

    async def _connect(self) -> None:
        """Connect to the keeper that is there; one that is just ending is waited for."""
        link = await connect_keeper(self._state)
        link.on_report = self._on_report
        await self._tasks.start(link.serve)
        try:
            answer = await link.ask("hello", None, **self._keeper_settings())
        except KeeperGone:
            # It may have refused us and closed before we could send anything.
            with anyio.move_on_after(_GRACE_SECONDS):
                await link.ended.wait()
            if link.refusal:
                raise SpawnFailed(link.refusal) from None
            raise
        if answer.is_ending:
            await self._end(link)
            raise KeeperGone
        self._link = link
        self._tasks.start_soon(self._watch_keeper, link)

    def _keeper_settings(self) -> dict[str, object]:
        return {
            "when_bus_stops": self._settings.when_bus_stops,
            "adopt_seconds": self._settings.adopt_seconds,
        }

    async def _watch_keeper(self, link: KeeperLink) -> None:
        """When the keeper is gone, nothing of its workers may be left, and they are told of."""
        await link.ended.wait()
        with anyio.CancelScope(shield=True):
            async with self._is_linking:
                self._link = None
                await self._end_remains()
                lost, self._workers = self._workers, {}
                for worker in lost.values():
                    lines = tuple(await worker.last_lines())
                    worker.on_report(Report("failed", _KEEPER_LOST, lines))

    async def _end_remains(self) -> None:
        """End what a keeper left behind that was killed."""
        await to_thread.run_sync(end_remains, self._state)

    def _on_report(self, name: str, report: Report, init: int | None) -> None:
        worker = self._workers.get(name)
        if worker is None:
            return
        if report.kind in ("failed", "stopped"):
            del self._workers[name]
        worker.on_report(report, init)
