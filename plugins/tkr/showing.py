"""What a client is shown of its sessions: from the events of the gateway to those of Socket.IO."""

from __future__ import annotations

from typing import Any

from busd.gateway import (
    Amended,
    Cancel,
    ContextShared,
    Delta,
    Effects,
    Emit,
    Entered,
    Entry,
    Event,
    Notified,
    Posted,
    Prompt,
    PromptClosed,
    Prompted,
    PromptEnd,
    Replied,
    Said,
    Stepped,
    TaskChanged,
    Turn,
    TurnBegan,
    TurnEnded,
    TurnFailed,
)
from busd_plugins.tkr import frames
from busd_plugins.tkr.connection import TASKS, Connection
from busd_plugins.tkr.messages import Incoming
from busd_plugins.tkr.prompts import Prompts
from busd_plugins.tkr.streams import Streams
from busd_plugins.tkr.tasks import context_events, step_events, task_events
from busd_plugins.tkr.words import STREAMING


class Showing:
    """What one connection is shown, and what it has been shown that is not over."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.prompts = Prompts()
        self._streams = Streams()
        self._steps: dict[tuple[str, str], str] = {}  # turns by session and step, while they run

    def show(self, event: Event) -> Effects:
        if self.connection.namespace == TASKS:
            yield from self._show_task(event)
            return
        match event:
            case Entered():
                yield from self._entered(event)
            case Said() | Posted() | Amended():
                yield from self._entry(event)
            case TurnBegan():
                yield from self._start(event.conversation, event.turn)
            case Delta():
                yield from self._delta(event)
            case Stepped():
                yield from self._start(event.conversation, event.turn)
                yield from self._step(event)
            case Prompted():
                yield from self._start(event.conversation, event.turn)
                yield self._prompt(event.conversation, event.turn, event.prompt)
            case PromptClosed():
                yield from self._prompt_closed(event)
            case Replied():
                yield from self._reply(event)
            case TurnFailed():
                yield from self._failure(event)
            case TurnEnded():
                yield from self._end(event.conversation, event.turn)
            case TaskChanged():
                yield from task_events(self.connection, event)
            case ContextShared():
                yield from context_events(self.connection, event)
            case Notified():
                yield from self._partial(event)
            case _:
                pass

    def cancel_of(self, message: Incoming) -> Cancel | None:
        """Return how to cancel the turn that a task is a step of, None if it is none."""
        turn = self._steps.get((message.session, message.subject))
        return Cancel(message.session, turn) if turn else None

    def forget(self, session: str) -> None:
        """Forget a session that the client has left."""
        self.prompts.forget(session)
        self._streams.forget(session)
        self._steps = {key: turn for key, turn in self._steps.items() if key[0] != session}

    # Sessions and entries

    def _entered(self, event: Entered) -> Effects:
        """Show what the client has missed, and what is open."""
        for entry in event.entries:
            is_own = entry.author.id == self.connection.user.id
            yield from self._kept(event.conversation, entry, is_own=is_own)
        for turn in event.turns:
            yield from self._start(event.conversation, turn, again=True)
        agents = {turn.id: turn for turn in event.turns}
        for prompt in event.prompts:
            yield self._prompt(event.conversation, agents.get(prompt.turn), prompt)

    def _entry(self, event: Said | Posted | Amended) -> Effects:
        if not event.is_own:
            yield from self._kept(event.conversation, event.entry, is_own=False)

    def _kept(self, session: str, entry: Entry, *, is_own: bool) -> Effects:
        if entry.dialect != "tkr" and not entry.text and not entry.attachments:
            return  # a note of another format, such as who has joined
        now = self.connection.hello.now()
        said = frames.entry_frame(session, entry, is_own=is_own, now=now)
        yield Emit("message", said)
        if said["type"] == "agent_message":
            for agent in entry.to:
                yield from self._a2a(agent, said)

    def _a2a(self, agent: str, said: dict[str, Any]) -> Effects:
        """Show a message of one agent to another to whoever is in the other's room."""
        if agent in self.connection.agents:
            names = ("from_agent", "to_agent", "content", "task_id", "timestamp", "session_id")
            about = {name: said[name] for name in names if name in said}
            yield Emit("a2a", {"type": "agent_message", **about})

    def _partial(self, event: Notified) -> Effects:
        """Show a part of what an agent says that is a client of this format."""
        about = frames.value_of(event.data)
        if event.kind != STREAMING or not isinstance(about, dict):
            return
        said = frames.frame(
            "text",
            message_id=str(about.get("id")),
            timestamp=str(about.get("timestamp")),
            session=event.conversation,
            from_agent=event.by.id if event.by.type == "agent" else None,
            from_user=True if event.by.type == "user" else None,
            content=str(about.get("content")),
            streaming=True,
            turn_complete=False,
        )
        yield Emit("message", said)

    # Turns

    def _start(self, session: str, turn: Turn, *, again: bool = False) -> Effects:
        """Show that an agent has begun to answer, once it is known which."""
        if not turn.agent.id or turn.author.type == "agent":
            return
        stream, is_new = self._streams.start(session, turn, self.connection.hello.now())
        text = turn.text if again else ""
        if is_new or again:
            stream.shown = len(text)
            yield Emit("message", frames.streamed(stream, turn, text))

    def _delta(self, event: Delta) -> Effects:
        turn = event.turn
        yield from self._start(event.conversation, turn)
        if not turn.agent.id or turn.author.type == "agent":
            return
        stream, _ = self._streams.start(event.conversation, turn, self.connection.hello.now())
        if self.connection.is_streamed_to and stream.is_due(turn.text):
            stream.shown = len(turn.text)
            yield Emit("message", frames.streamed(stream, turn, turn.text))

    def _step(self, event: Stepped) -> Effects:
        key = (event.conversation, event.step.id)
        is_new = key not in self._steps
        self._steps[key] = event.turn.id
        yield from step_events(self.connection, event.conversation, event.turn, event.step, is_new)

    def _reply(self, event: Replied) -> Effects:
        """Show an answer: as the end of its stream, or on its own."""
        session, turn, entry = event.conversation, event.turn, event.entry
        now = self.connection.hello.now()
        said = frames.entry_frame(session, entry, is_own=False, now=now)
        if turn is not None and turn.author.type == "agent":
            said = frames.to_agent(said, turn.author.id)
            yield Emit("message", said)
            yield from self._a2a(turn.author.id, said)
            return
        if turn is not None:
            yield from self._start(session, turn)
            if stream := self._streams.end(session, turn):
                said |= {"id": stream.id, "timestamp": stream.timestamp}
        yield Emit("message", said)

    def _failure(self, event: TurnFailed) -> Effects:
        yield from self._end(event.conversation, event.turn)
        details = frames.value_of(event.details)
        said = frames.failed(
            event.conversation,
            event.entry,
            code=event.code,
            text=event.message,
            details=details,
            severity=event.severity,
            recoverable=event.recoverable,
            now=self.connection.hello.now(),
        )
        yield Emit("message", said)

    def _end(self, session: str, turn: Turn) -> Effects:
        """End a stream whose turn was cancelled or has failed; forget the turn."""
        if stream := self._streams.end(session, turn):
            yield Emit("message", frames.streamed(stream, turn, turn.text, is_last=True))
        self._forget_steps(turn)

    def _forget_steps(self, turn: Turn) -> None:
        self._steps = {key: each for key, each in self._steps.items() if each != turn.id}

    # Prompts

    def _prompt(self, session: str, turn: Turn | None, prompt: Prompt) -> Emit:
        agent = turn.agent.id if turn else ""
        self.prompts.add(session, agent, prompt)
        now = self.connection.hello.now()
        return Emit("message", frames.prompted(session, prompt.turn, agent, prompt, now))

    def _prompt_closed(self, event: PromptClosed) -> Effects:
        self.prompts.remove(event.conversation, event.prompt.id)
        if event.how == PromptEnd.TIMED_OUT:
            now = self.connection.hello.now()
            yield Emit("message", frames.timed_out(event.conversation, event.prompt, now))

    # The namespace /tasks

    def _show_task(self, event: Event) -> Effects:
        """Show the tasks that the client has subscribed to, and nothing else."""
        if isinstance(event, TaskChanged) and event.task.task_id in self.connection.tasks:
            yield from task_events(self.connection, event)
        elif isinstance(event, Stepped) and event.step.id in self.connection.tasks:
            yield from self._step(event)
        elif isinstance(event, TurnEnded):
            self._forget_steps(event.turn)
        elif isinstance(event, Entered):
            for task in event.tasks:
                if task.task_id in self.connection.tasks:
                    by = self.connection.user
                    changed = TaskChanged(event.conversation, task, "updated", by, False)
                    yield from task_events(self.connection, changed)
