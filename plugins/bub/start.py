"""The start of a worker: when it is its turn, its process is started and has to join the bus."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from busd import ConfigError, Refuse
from busd.supervise import SpawnFailed, SupervisedProcess
from busd_plugins.bub.chats import Chat
from busd_plugins.bub.sessions import NoSessions
from busd_plugins.bub.starting import config_of, make_workspace, remove_folder
from busd_plugins.bub.worker_state import WorkerState

if TYPE_CHECKING:
    from busd_plugins.bub.worker import Worker

_ALONE_SECONDS = 5.0  # after which a slow start lets the next one begin


class Start:
    """A start that is under way: all who want the worker wait for this one."""

    def __init__(self, worker: Worker) -> None:
        self.is_wanted = False  # somebody waits for it; else it is only watched
        self.was_queued = False  # others were started first
        self._worker = worker
        self._agent = worker.agent
        self._scope = anyio.CancelScope()
        self._refusal: Refuse | None = None
        self._is_over = anyio.Event()

    # For those who wait for it

    async def call_off(self) -> None:
        """End it before there is a process."""
        self._scope.cancel()
        await self._is_over.wait()

    def settle(self, refusal: Refuse | None) -> None:
        self._refusal = refusal
        self._is_over.set()

    async def wait(self, seconds: float) -> None:
        """Wait for its end; raise Refuse saying why if the worker is not there then.

        One that is late only because others were started first is not refused: it goes on.
        """
        with anyio.move_on_after(seconds):
            await self._is_over.wait()
        if not self._is_over.is_set():
            if self.was_queued:
                return
            raise Refuse("the worker is still starting", retry_seconds=1)
        if self._refusal is not None:
            raise Refuse(self._refusal.reason, retry_seconds=self._refusal.retry_seconds)

    # What happens

    async def run(self) -> Refuse | None:
        """Start the worker; return the reason if that fails."""
        try:
            with self._scope:
                await self._get_ready()
        except Refuse as refusal:
            return refusal
        if self._scope.cancelled_caught:
            return Refuse("the worker was stopped", retry_seconds=1)
        return None

    async def _get_ready(self) -> None:
        worker, agent = self._worker, self._agent
        await agent.registry.is_settled.wait()  # it may run already: see Worker.adopt
        if worker.state.is_expected and await self._comes_back():
            return
        if worker.running is not None:
            await worker.until_gone(worker.ended)
        if not (self.is_wanted or agent.has_mail):
            return  # it ended by itself, and no message waits for it
        if agent.is_present:
            return  # somebody else with the same name stays
        agent.registry.check_room()
        worker.enter("wanted")
        await self._launch_in_turn()
        if not await self._comes_back():
            reason = f"the worker ended before it connected: {worker.ending}"
            worker.give_up(reason)
            raise Refuse(reason)

    async def _launch_in_turn(self) -> None:
        """Start the process when few others are at it, and give it a while to itself.

        All at once they would only slow each other down: 200 interpreters on two cores take longer
        to connect, each of them, than they may. Its own time begins when its start does.
        """
        worker, agent = self._worker, self._agent
        room = agent.registry.room_to_start()
        if room.available_tokens < 1:
            self.was_queued = True
            agent.waiting_turns.notify_queued()
        async with room:
            await self._launch()
            worker.deadline = anyio.current_time() + worker.ready_seconds
            with anyio.move_on_after(_ALONE_SECONDS):
                while worker.running is not None and not agent.is_present:
                    await worker.next_change()

    async def _comes_back(self) -> bool:
        """Wait until the worker is on the bus; False if it has ended, raise Refuse if it failed.

        The time runs anew with each restart, and not while the spawner waits for the next one.
        """
        worker = self._worker
        while not self._agent.is_present:
            if worker.state is WorkerState.FAILED:
                raise Refuse(worker.ending)
            if worker.running is None:
                return False
            is_timed = worker.state in (WorkerState.CONNECTING, WorkerState.READY)
            left = worker.deadline - anyio.current_time() if is_timed else inf
            if left <= 0:
                await self._too_late(worker.running)
            with anyio.move_on_after(left if left < inf else None):
                await worker.next_change()
        return True

    async def _too_late(self, running: SupervisedProcess) -> None:
        """Stop a worker that did not connect in time."""
        worker, agent = self._worker, self._agent
        seconds = worker.ready_seconds
        reason = f"the worker did not connect as {agent.client_id} within {seconds:g} s"
        if others := agent.registry.unknown_since(worker.deadline - seconds):
            reason += f"; {', '.join(others)} joined meanwhile"
        lines = tuple(await running.last_lines())
        worker.verdict = with_lines(reason, lines)
        await worker.stop()
        raise Refuse(worker.verdict)

    async def _launch(self) -> None:
        """Start the process; raise Refuse and leave nothing half done."""
        worker, agent, registry = self._worker, self._agent, self._agent.registry
        worker.verdict = worker.ending = ""
        is_new = agent.client_id not in registry.sessions.known
        try:
            worker.enter("launch")
            agent.waiting_turns.notify_launched()
            chat = Chat(agent.session.channel, agent.session.chat_id)
            workspace = await anyio.to_thread.run_sync(
                make_workspace,
                registry.state,
                chat,
                config_of(agent.session),
                agent.session.workspace,
            )
            try:
                await agent.save(workspace=str(workspace), is_interrupted=False)
            except NoSessions:
                if is_new:
                    await anyio.to_thread.run_sync(remove_folder, workspace)
                raise
            await self._spawn()
        except OSError as problem:
            raise Refuse(f"the workspace cannot be made: {problem.strerror}") from None
        except NoSessions as problem:
            raise Refuse(str(problem)) from None
        except (SpawnFailed, ConfigError) as problem:
            reason = f"the worker cannot be started: {problem}"
            worker.give_up(reason)
            raise Refuse(reason) from None
        finally:
            worker.enter("refused")  # unless it was spawned, or has failed

    async def _spawn(self) -> None:
        agent, registry = self._agent, self._agent.registry
        spawner = await registry.spawner_of(agent.session.channel)
        launch, table = registry.launch_of(agent), registry.table_of(agent)
        running = await spawner.start(launch)
        agent.note(systemd_unit=running.unit, spawner=spawner.name, log=running.log, table=table)
        agent.announce("spawned")
        self._worker.take_over(running, "spawned")
        if agent.is_outdated:
            registry.reloaded.set()  # while it was started
        await registry.flush()  # now: a bus that comes after us finds the worker by its unit


def with_lines(reason: str, lines: tuple[str, ...]) -> str:
    """Return a reason with the last lines that a worker wrote."""
    return f"{reason}; it said last: {' | '.join(lines)}" if lines else reason
