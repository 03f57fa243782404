"""What a client is shown of its conversations."""

from __future__ import annotations

import msgspec

from busd.gateway import (
    Delta,
    Effects,
    Entered,
    Entry,
    Event,
    Hello,
    Kind,
    Posted,
    Prompt,
    PromptClosed,
    Prompted,
    Replied,
    Said,
    Send,
    Stepped,
    TaskChanged,
    Turn,
    TurnBegan,
    TurnEnded,
    TurnFailed,
)
from busd_plugins.agentiq.content import text_with_attachments
from busd_plugins.agentiq.faults import Invalid, code_of_failure
from busd_plugins.agentiq.frames import Frame, Frames, Place, plain_text
from busd_plugins.agentiq.interactions import content_of
from busd_plugins.agentiq.rooms import Answering, Room, name_of


class Display:
    """Turns events into frames."""

    def __init__(self, hello: Hello, dialect: str) -> None:
        self.frames = Frames(hello)
        self.dialect = dialect
        self.user = hello.user
        self.rooms: dict[str, Room] = {}  # entered; the one that was used last stands last
        self.is_simple = hello.query.get("prompts") == "simple"
        self.entering = ""  # a conversation whose running turns are about to be cancelled

    def room(self, name: str) -> Room:
        return self.rooms.setdefault(name, Room(name))

    def show(self, event: Event) -> Effects:
        """Send what an event means to the client."""
        if isinstance(event, Entered):
            yield from self._entered(event)
            return
        room = self.rooms.get(getattr(event, "conversation", ""))
        if room is None:
            return
        match event:
            case Said() | Posted() if not event.is_own:
                yield from self._words(room, event.entry, is_aside=room.has_answers)
            case TurnBegan():
                room.answering(event.turn, is_own=event.is_own)
            case Delta():
                answering = room.answering(event.turn, is_own=event.is_own)
                if answering.takes(event.text):
                    yield from _send(answering, self.frames.text(answering.place, event.text))
            case Stepped():
                answering = room.answering(event.turn, is_own=event.is_own)
                frame = self.frames.step(answering.place, event.step)
                yield from _send(answering, answering.steps.complete(frame, event.step.parent))
            case Prompted():
                answering = room.answering(event.turn, is_own=event.is_own)
                yield from self._prompt(room, answering, event.prompt, is_own=event.is_own)
            case PromptClosed():
                room.prompts.close(event.prompt.id, event.how)
            case Replied(turn=None):
                yield from self._unasked(room, event.entry)
            case Replied(turn=Turn() as turn):
                answering = room.answering(turn, is_own=event.is_own)
                yield from self._reply(answering, event.entry)
            case TurnFailed():
                yield from self._failure(room.answering(event.turn, is_own=event.is_own), event)
            case TurnEnded():
                yield from self._end(room, event)
            case TaskChanged():
                yield from self._task(room, event)
            case _:
                pass

    # One method for each kind of event

    def _entered(self, event: Entered) -> Effects:
        """Show what the client has missed, and what goes on."""
        room = self.room(event.conversation)
        is_replaced = event.conversation == self.entering
        answers = [entry for entry in event.entries if entry.kind in (Kind.REPLY, Kind.FAILURE)]
        is_awaited = is_replaced or bool(event.turns or answers)
        for entry in event.entries:
            if entry.kind in (Kind.REPLY, Kind.FAILURE):
                yield from self._missed(room, entry, is_aside=is_replaced)
            elif entry.author.id != self.user or entry.dialect != self.dialect:
                yield from self._words(room, entry, is_aside=is_awaited)
        for turn in event.turns:
            is_known = room.find(turn) is not None
            answering = room.answering(turn, is_own=is_replaced or turn.author.id == self.user)
            if not (is_known or is_replaced) and answering.takes(turn.text):
                yield from _send(answering, self.frames.text(answering.place, turn.text))
            for prompt in event.prompts:
                if prompt.turn == turn.id and not is_replaced:
                    yield from self._prompt(room, answering, prompt, is_own=False)

    def _missed(self, room: Room, entry: Entry, *, is_aside: bool) -> Effects:
        """Show how a turn has ended while the client was away."""
        place = room.place(entry.turn or entry.id, entry.thread_id)
        text = text_with_attachments(entry)
        if is_aside:
            yield Send(self.frames.note(place, entry.id, name_of(entry.author), text))
            return
        if entry.kind == Kind.FAILURE:
            for frame in self.frames.failure(place, "workflow_error", text, "while you were away"):
                yield Send(frame)
        else:
            yield Send(self.frames.text(place, text))
        yield Send(self.frames.complete(place))

    def _words(self, room: Room, entry: Entry, *, is_aside: bool) -> Effects:
        """Show what somebody else says: beside an answer that comes in, as a note."""
        name, text = name_of(entry.author), text_with_attachments(entry)
        if not text:
            return
        place = room.place(entry.id, entry.thread_id)
        if is_aside:
            yield Send(self.frames.note(place, entry.id, name, text))
        else:
            yield Send(self.frames.text(place, f"{name}: {text}\n\n", entry.author))

    def _unasked(self, room: Room, entry: Entry) -> Effects:
        """Show words of an agent that belong to no turn."""
        name, text = name_of(entry.author), text_with_attachments(entry)
        place = room.place(entry.turn or entry.reply_to or entry.id, entry.thread_id)
        if room.has_answers:
            yield Send(self.frames.note(place, entry.id, name, text))
            return
        yield Send(self.frames.text(place, text, entry.author))
        yield Send(self.frames.complete(place))

    def _prompt(self, room: Room, answering: Answering, prompt: Prompt, *, is_own: bool) -> Effects:
        """Put a prompt to its user, wherever that user is connected; the others only read it."""
        place = answering.place
        if is_own or answering.turn.author.id == self.user:
            frame = self.frames.interaction(place, content_of(prompt, is_simple=self.is_simple))
            room.prompts.show(prompt, frame)
            yield from _send(answering, frame)
        else:
            options = [f"- {option.label}" for option in prompt.options]
            text = "\n".join([prompt.text, *options])
            yield Send(self.frames.note(place, prompt.id, name_of(answering.turn.agent), text))

    def place_of_prompt(self, place: Place, parent: str) -> Place:
        """Return the place of an answer that names no conversation: that of its prompt."""
        known = [room.name for room in self.rooms.values() if room.prompts.knows(parent)]
        if not known or place.conversation in known:
            return place
        return msgspec.structs.replace(place, conversation=known[0])

    def ask_again(self, place: Place, parent: str) -> Effects:
        """Put a prompt again whose answer was refused: the toolkit's web UI has closed it."""
        room = self.rooms.get(place.conversation)
        if room is None or not self.is_simple:
            return
        try:
            prompt = room.prompts.find(parent)
        except Invalid:
            return  # it is not open any more
        frame = self.frames.again(room.prompts.frame_of(prompt))
        room.prompts.show(prompt, frame)
        yield Send(frame)

    def _reply(self, answering: Answering, entry: Entry) -> Effects:
        if answering.is_aside:
            name, text = name_of(entry.author), text_with_attachments(entry)
            yield from _send(answering, self.frames.note(answering.place, entry.id, name, text))
        elif rest := answering.rest_of(entry):
            yield from _send(answering, self.frames.text(answering.place, rest))

    def _failure(self, answering: Answering, event: TurnFailed) -> Effects:
        place, code = answering.place, code_of_failure(event.code)
        if answering.is_aside:
            name = name_of(event.turn.agent)
            frame = self.frames.note(place, event.entry.id, name, event.message)
            yield from _send(answering, frame)
            return
        details = (plain_text(event.details) if event.details else event.code) or code
        frames = self.frames.failure(place, code, event.message, details)
        for frame in frames if answering.is_bare else frames[1:]:
            yield from _send(answering, frame)

    def _end(self, room: Room, event: TurnEnded) -> Effects:
        answering = room.answering(event.turn, is_own=event.is_own)
        room.end(event.turn)
        if not answering.is_aside:
            yield from _send(answering, self.frames.complete(answering.place))

    def resume(self, answering: Answering) -> Effects:
        """Go on with an answer that is not cancelled after all."""
        answering.is_superseded = False
        for frame in answering.held:
            yield Send(frame)
        answering.held.clear()

    def _task(self, room: Room, event: TaskChanged) -> Effects:
        """Show the state of a task as a note that replaces the one before."""
        task = event.task
        name = str(task.title or task.kind or "task")
        state = [str(task.status)] if task.status else [event.action]
        if isinstance(task.progress, float | int):
            state.append(f"{task.progress:g} %")
        yield Send(self.frames.note(Place(room.name), task.task_id, name, ", ".join(state)))


def _send(answering: Answering, frame: Frame) -> Effects:
    answering.is_bare = answering.is_bare and frame["type"] == "system_interaction_message"
    if answering.is_superseded:
        answering.held.append(frame)
    else:
        yield Send(frame)
