"""The worker behind an agent: started at most once at a time, awaited, watched and stopped.

`worker_state` has its states and transitions; `_enter` performs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from busd import ConfigError, Refuse, now
from busd.supervise import Report, SpawnFailed, SupervisedProcess
from busd_plugins.bub.chats import Chat
from busd_plugins.bub.notices import NOT_STARTED, close_turns
from busd_plugins.bub.sessions import NoSessions
from busd_plugins.bub.starting import config_of, make_workspace, remove_folder
from busd_plugins.bub.worker_state import TRANSITIONS, Start, WorkerState, initial_state

if TYPE_CHECKING:
    from busd import Identity
    from busd_plugins.bub.agent import ChatAgent

_GONE_SECONDS = 1.0
_ALONE_SECONDS = 5.0  # after which a slow start lets the next one begin
_NOT_BACK = "the agent lost its connection"  # as a chat is told
_STOPPED = "the agent was stopped"
_FAULT = "the worker could not be started: see the log of the bus"


class Worker:
    """The process of one agent, if there is one."""

    def __init__(self, agent: ChatAgent) -> None:
        self.agent = agent
        self.state = initial_state(agent.session.status)
        self.running: SupervisedProcess | None = (
            None  # from the spawner's answer to the worker's end
        )
        self._start: Start | None = None
        self._verdict = ""  # why we stop it, if that is its failure
        self._ending = ""  # the reason of the last end
        self._told_chat = ""  # the same, for its chat
        self._is_restarting = False
        self._deadline = inf  # by which it must be on the bus
        self._change = anyio.Event()
        self.ended = anyio.Event()
        self._closing = anyio.Lock()

    @property
    def _ready_seconds(self) -> float:
        return self.agent.registry.settings.agents.ready_seconds

    @property
    def is_starting(self) -> bool:
        return self._start is not None

    @property
    def is_ending(self) -> bool:
        """It was asked to stop, and still runs."""
        return self.state is WorkerState.ENDING

    def may_be(self, identity: Identity) -> bool:
        """Return whether a peer can be this worker: as far as the kernel knows its processes."""
        if identity.pid is None and identity.socket is None:
            return False  # of another host
        if self.running is not None:
            return self.running.owns(identity.pid, identity.socket) is not False
        # It runs before its spawner has reported it. Other peers are disconnected then.
        return self.state in (WorkerState.UNKNOWN, WorkerState.LAUNCHING)

    # Its state

    def _enter(self, event: str) -> None:
        """Perform the transition of an event, if there is one, and record it."""
        before, after = self.state, TRANSITIONS.get((self.state, event))
        if after is not None:
            self.state = after
            stopped_at = now() if after.has_ended else None
            self.agent.note(status=after.status, stopped_at=stopped_at)
            self.agent.registry.ctx.log.debug(
                "worker.changed",
                agent=self.agent.client_id,
                event_name=event,
                before=before.value,
                after=after.value,
            )
        self.changed()

    def joined(self) -> None:
        """Record that a peer with the worker's name is on the bus."""
        is_connecting = self.state is WorkerState.CONNECTING
        self._enter("joined")
        if is_connecting:
            self.agent.announce("ready")

    def lost(self) -> None:
        """Record that its process has ended, together with the bus that started it."""
        self._enter("lost")

    # Starting

    def bring_up(self, *, is_wanted: bool) -> Start:
        """Return the start in progress, or begin one."""
        registry = self.agent.registry
        if self._start is None:
            if registry.is_stopping:
                raise Refuse("the bus is stopping", retry_seconds=1)
            self._start = Start()
            self._deadline = anyio.current_time() + self._ready_seconds
            registry.ctx.tasks.start_soon(self._run_start, self._start)
        self._start.is_wanted |= is_wanted
        return self._start

    async def _run_start(self, start: Start) -> None:
        """Start the worker, and report the result to everyone who waits for it."""
        refusal: Refuse | None = Refuse(_FAULT)
        try:
            with start.scope:
                await self._get_ready(start)
                refusal = None
            if start.scope.cancelled_caught:
                refusal = Refuse("the worker was stopped", retry_seconds=1)
        except Refuse as reason:
            refusal = reason
        finally:
            # At once: a message that comes from now on is for the next start, not for this one.
            self._start = None
            self._enter("refused")  # if it never came to be launched
            start.settle(refusal)
            if refusal is not None:
                self.agent.refuse_waiting(refusal)
            self.agent.registry.forget_unless_kept(self.agent)
            if self.running is None:
                self.agent.registry.disconnect_others(self.agent)
        is_final = refusal is not None and refusal.retry_seconds is None
        # Unfinished turns of a worker that ran are closed by the task that watched its end.
        if is_final and self.running is None and not self.agent.registry.is_stopping:
            await self._close_turns("worker_failed", NOT_STARTED)

    async def _get_ready(self, start: Start) -> None:
        await self.agent.registry.is_settled.wait()  # it may run already: see adopt()
        if self.state.is_expected and await self._comes_back():
            return
        if self.running is not None:
            await self._until_gone(self.ended)
        if not (start.is_wanted or self.agent.waiting):
            return  # it ended by itself, and no message waits for it
        if self.agent.is_present:
            self.agent.hand_over_waiting()  # somebody else with the same name stays
            return
        self.agent.registry.check_room()
        self._enter("wanted")
        await self._launch_in_turn(start)
        if not await self._comes_back():
            reason = f"the worker ended before it connected: {self._ending}"
            self._give_up(reason)
            raise Refuse(reason)

    async def _launch_in_turn(self, start: Start) -> None:
        """Start the process when few others are at it, and give it a while to itself.

        All at once they would only slow each other down: 200 interpreters on two cores take longer
        to connect, each of them, than they may. Its own time begins when its start does.
        """
        room = self.agent.registry.room_to_start()
        if room.available_tokens < 1:
            start.was_queued = True
            self.agent.notify_queued()
        async with room:
            await self._launch()
            self._deadline = anyio.current_time() + self._ready_seconds
            with anyio.move_on_after(_ALONE_SECONDS):
                while self.running is not None and not self.agent.is_present:
                    await self._change.wait()

    @property
    def is_queued(self) -> bool:
        """It is not started yet because others are started first."""
        return self.state is WorkerState.QUEUED and bool(self._start and self._start.was_queued)

    async def _comes_back(self) -> bool:
        """Wait until the worker is on the bus; False if it has ended, raise Refuse if it failed.

        The time runs anew with each restart, and not while the spawner waits for the next one.
        """
        while not self.agent.is_present:
            if self.state is WorkerState.FAILED:
                raise Refuse(self._ending)
            if self.running is None:
                return False
            is_timed = self.state in (WorkerState.CONNECTING, WorkerState.READY)
            left = self._deadline - anyio.current_time() if is_timed else inf
            if left <= 0:
                await self._too_late(self.running)
            with anyio.move_on_after(left if left < inf else None):
                await self._change.wait()
        return True

    async def _too_late(self, running: SupervisedProcess) -> None:
        """Stop a worker that did not connect in time."""
        seconds = self._ready_seconds
        reason = f"the worker did not connect as {self.agent.client_id} within {seconds:g} s"
        if others := self.agent.registry.unknown_since(self._deadline - seconds):
            reason += f"; {', '.join(others)} joined meanwhile"
        lines = tuple(await running.last_lines())
        self._verdict = _with_lines(reason, lines)
        await self.stop()
        raise Refuse(self._verdict)

    async def _launch(self) -> None:
        """Start the process; raise Refuse and leave nothing half done."""
        agent, registry = self.agent, self.agent.registry
        self._verdict = self._ending = ""
        is_new = agent.client_id not in registry.sessions.known
        try:
            self._enter("launch")
            agent.notify_launched()
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
            self._give_up(reason)
            raise Refuse(reason) from None
        finally:
            self._enter("refused")  # unless it was spawned, or has failed

    async def _spawn(self) -> None:
        agent, registry = self.agent, self.agent.registry
        spawner = await registry.spawner_of(agent.session.channel)
        launch, table = registry.launch_of(agent), registry.table_of(agent)
        running = await spawner.start(launch)
        agent.note(systemd_unit=running.unit, spawner=spawner.name, log=running.log, table=table)
        agent.announce("spawned")
        self._take_over(running, "spawned")
        if agent.is_outdated:
            registry.reloaded.set()  # while it was started
        await registry.flush()  # now: a bus that comes after us finds the worker by its unit

    def adopt(self, running: SupervisedProcess) -> None:
        """Adopt a worker of an earlier bus; it may take a while to connect to this one."""
        self._take_over(running, "adopted")
        if not self.agent.is_present:
            self.bring_up(is_wanted=False)
            self._deadline += self.agent.registry.settings.agents.adopt_seconds

    def _take_over(self, running: SupervisedProcess, event: str) -> None:
        """Watch a worker that runs; it may have joined the bus before its spawner said so."""
        self.running = running
        self.ended = anyio.Event()
        self._enter(event)
        self.agent.registry.disconnect_others(self.agent)
        if self.agent.is_present:
            self.joined()
        self.agent.registry.ctx.tasks.start_soon(self._watch, running)

    # Watching

    async def _watch(self, running: SupervisedProcess) -> None:
        try:
            async for report in running.reports():
                self._take(running, report)
            if not self._is_resumed:
                code = "worker_failed" if self.state is WorkerState.FAILED else "stopped"
                await self._close_turns(code, self._told_chat)
        finally:
            self.running = None
            self.ended.set()
            self.changed()
        if self.agent.waiting and not self.agent.registry.is_stopping:
            self.bring_up(is_wanted=True)  # came while it stopped

    @property
    def _is_resumed(self) -> bool:
        """A later worker, of this bus or the next, goes on with the turns of one that ended."""
        start = self._start
        is_wanted = bool(self.agent.waiting) or (start is not None and start.is_wanted)
        is_started_again = self._is_restarting or is_wanted
        is_failed = self.state is WorkerState.FAILED
        return self.agent.registry.is_stopping or (is_started_again and not is_failed)

    async def _close_turns(self, code: str, message: str) -> None:
        # One after the other: what its end has closed is not closed again by the start that failed.
        async with self._closing:
            await close_turns(self.agent.registry, self.agent.session, code, message)

    def _take(self, running: SupervisedProcess, report: Report) -> None:
        agent = self.agent
        if report.kind == "exited":
            self._enter("exited")
            agent.announce("exited", report.reason, report.last_lines)
        elif report.kind == "restarted":
            self._restarted(running, report)
        elif report.kind == "failed" or self._verdict:
            reason = self._verdict or _with_lines(
                f"the worker failed: {report.reason}", report.last_lines
            )
            # Not the reason of a verdict, nor the last lines: they are for the operator.
            why = _NOT_BACK if self._verdict else f"the agent failed ({report.reason})"
            self._told_chat = why
            self._give_up(reason, report.last_lines)
        else:
            self._ending = report.reason
            self._told_chat = _STOPPED
            self._enter("stopped")
            agent.announce("stopped", report.reason)

    def _restarted(self, running: SupervisedProcess, report: Report) -> None:
        agent = self.agent
        self._deadline = anyio.current_time() + self._ready_seconds
        agent.note(systemd_unit=running.unit)
        agent.announce("restarted", report.reason)
        self._enter("restarted")
        agent.registry.disconnect_others(agent)
        if agent.is_present:
            self.joined()  # before we heard of it
        elif self.state.is_expected and not agent.registry.is_stopping:
            self.bring_up(is_wanted=False)

    def _give_up(self, reason: str, last_lines: tuple[str, ...] = ()) -> None:
        self._ending = reason
        self._enter("failed")
        self.agent.announce("failed", reason, last_lines)

    def changed(self) -> None:
        """Wake everyone who waits for the worker."""
        self._change.set()
        self._change = anyio.Event()

    async def until_free(self) -> None:
        """Wait while a peer that is not our worker has its name."""
        while self.agent.is_present and not self.state.is_expected:
            await self._change.wait()

    # Stopping

    async def restart(self) -> None:
        """End the worker and start it again; the next one goes on with its turns."""
        self._is_restarting = True
        try:
            await self.stop()
        finally:
            self._is_restarting = False
        self.bring_up(is_wanted=True)

    async def stop(self, cancel_turns: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop the worker, and return when it has ended."""
        if self._start is not None and not self.state.takes_room:
            await self._start.call_off()  # it waits for its turn
        while self.state is WorkerState.LAUNCHING:
            await self._change.wait()
        running, ended = self.running, self.ended  # the next one may run before we look again
        if running is not None:
            self._enter("told")
            if cancel_turns is not None:
                await cancel_turns()
            await running.stop()
            await self._until_gone(ended)

    async def _until_gone(self, ended: anyio.Event) -> None:
        """Wait for the worker's end, and until the bus has seen it, too."""
        await ended.wait()
        with anyio.move_on_after(_GONE_SECONDS):  # somebody else may have the same name
            while self.agent.is_present and self.running is None:
                await self._change.wait()


def _with_lines(reason: str, lines: tuple[str, ...]) -> str:
    return f"{reason}; it said last: {' | '.join(lines)}" if lines else reason
