"""The worker behind an agent: started at most once at a time, awaited, watched and stopped.

`worker_state` has its states and transitions; `enter` performs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING

import anyio

from busd import Refuse, now
from busd.supervise import Report, SupervisedProcess
from busd_plugins.bub.notices import NOT_STARTED, close_turns
from busd_plugins.bub.start import Start, with_lines
from busd_plugins.bub.worker_state import TRANSITIONS, WorkerState, initial_state

if TYPE_CHECKING:
    from busd import Identity
    from busd_plugins.bub.agent import ChatAgent

_GONE_SECONDS = 1.0
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
        self.verdict = ""  # why we stop it, if that is its failure
        self.ending = ""  # the reason of the last end
        self._told_chat = ""  # the same, for its chat
        self._is_restarting = False
        self.deadline = inf  # by which it must be on the bus
        self._change = anyio.Event()
        self.ended = anyio.Event()
        self._closing = anyio.Lock()

    @property
    def ready_seconds(self) -> float:
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

    def enter(self, event: str) -> None:
        """Perform the transition of an event, if there is one, and record it."""
        before, after = self.state, TRANSITIONS.get((self.state, event))
        if after is not None:
            self.state = after
            if self.is_ending:  # what comes from now on is for the next one
                self.agent.registry.ctx.mail.hold(self.agent.client_id)
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
        self.enter("joined")
        if is_connecting:
            self.agent.announce("ready")

    def lost(self) -> None:
        """Record that its process has ended, together with the bus that started it."""
        self.enter("lost")

    # Starting

    def bring_up(self, *, is_wanted: bool) -> Start:
        """Return the start in progress, or begin one."""
        registry = self.agent.registry
        if self._start is None:
            if registry.is_stopping:
                raise Refuse("the bus is stopping", retry_seconds=1)
            self._start = Start(self)
            self.deadline = anyio.current_time() + self.ready_seconds
            registry.ctx.tasks.start_soon(self._run_start, self._start)
        self._start.is_wanted |= is_wanted
        return self._start

    @property
    def is_queued(self) -> bool:
        """It is not started yet because others are started first."""
        return self.state is WorkerState.QUEUED and bool(self._start and self._start.was_queued)

    async def _run_start(self, start: Start) -> None:
        """Start the worker, and report the result to everyone who waits for it."""
        refusal: Refuse | None = Refuse(_FAULT)
        try:
            refusal = await start.run()
        finally:
            # At once: a message that comes from now on is for the next start, not for this one.
            self._start = None
            self.enter("refused")  # if it never came to be launched
            start.settle(refusal)
            if refusal is not None:
                self.agent.on_start_refused(refusal)
            self.agent.registry.forget_unless_kept(self.agent)
            if self.running is None:
                self.agent.registry.disconnect_others(self.agent)
        is_final = refusal is not None and refusal.retry_seconds is None
        # Unfinished turns of a worker that ran are closed by the task that watched its end.
        if is_final and self.running is None and not self.agent.registry.is_stopping:
            await self._close_turns("worker_failed", NOT_STARTED)

    def adopt(self, running: SupervisedProcess) -> None:
        """Adopt a worker of an earlier bus; it may take a while to connect to this one."""
        self.take_over(running, "adopted")
        if not self.agent.is_present:
            self.bring_up(is_wanted=False)
            self.deadline += self.agent.registry.settings.agents.adopt_seconds

    def take_over(self, running: SupervisedProcess, event: str) -> None:
        """Watch a worker that runs; it may have joined the bus before its spawner said so."""
        self.running = running
        self.ended = anyio.Event()
        self.enter(event)
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
            self.agent.registry.start_queue.look()
            self.agent.registry.ctx.tasks.start_soon(self._go_on)

    async def _go_on(self) -> None:
        """Deliver again when the bus has seen the worker's end, and start the next one for mail."""
        agent, mail = self.agent, self.agent.registry.ctx.mail
        try:
            await self._until_left()
        finally:
            if not self.is_ending:  # the next one
                mail.let_go(agent.client_id)
        if agent.has_mail and not (agent.is_present or agent.stops):
            agent.start_for_mail()

    @property
    def _is_resumed(self) -> bool:
        """A later worker, of this bus or the next, goes on with the turns of one that ended."""
        start = self._start
        is_wanted = self.agent.has_mail or (start is not None and start.is_wanted)
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
            self.enter("exited")
            agent.announce("exited", report.reason, report.last_lines)
        elif report.kind == "restarted":
            self._restarted(running, report)
        elif report.kind == "failed" or self.verdict:
            reason = self.verdict or with_lines(
                f"the worker failed: {report.reason}", report.last_lines
            )
            # Not the reason of a verdict, nor the last lines: they are for the operator.
            why = _NOT_BACK if self.verdict else f"the agent failed ({report.reason})"
            self._told_chat = why
            self.give_up(reason, report.last_lines)
        else:
            self.ending = report.reason
            self._told_chat = _STOPPED
            self.enter("stopped")
            agent.announce("stopped", report.reason)

    def _restarted(self, running: SupervisedProcess, report: Report) -> None:
        agent = self.agent
        self.deadline = anyio.current_time() + self.ready_seconds
        agent.note(systemd_unit=running.unit)
        agent.announce("restarted", report.reason)
        self.enter("restarted")
        agent.registry.disconnect_others(agent)
        if agent.is_present:
            self.joined()  # before we heard of it
        elif self.state.is_expected and not agent.registry.is_stopping:
            self.bring_up(is_wanted=False)

    def give_up(self, reason: str, last_lines: tuple[str, ...] = ()) -> None:
        self.ending = reason
        self.enter("failed")
        self.agent.announce("failed", reason, last_lines)

    def changed(self) -> None:
        """Wake everyone who waits for the worker."""
        self._change.set()
        self._change = anyio.Event()

    async def next_change(self) -> None:
        """Wait until something has changed."""
        await self._change.wait()

    async def until_free(self) -> None:
        """Wait while a peer that is not our worker has its name."""
        while self.agent.is_present and not self.state.is_expected:
            await self.next_change()

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
            await self.next_change()
        running, ended = self.running, self.ended  # the next one may run before we look again
        if running is not None:
            self.enter("told")
            if cancel_turns is not None:
                await cancel_turns()
            await running.stop()
            await self.until_gone(ended)

    async def until_gone(self, ended: anyio.Event) -> None:
        """Wait for the worker's end, and until the bus has seen it, too."""
        await ended.wait()
        await self._until_left()

    async def _until_left(self) -> None:
        with anyio.move_on_after(_GONE_SECONDS):  # somebody else may have the same name
            while self.agent.is_present and self.running is None:
                await self.next_change()
