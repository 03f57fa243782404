"""The dialect: plain text in, a frame for each stage of an answer out."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from busd.gateway import (
    Answer,
    Author,
    Close,
    Delta,
    Dialect,
    Done,
    Effects,
    Enter,
    Entered,
    Entry,
    Event,
    Frame,
    Hello,
    Kind,
    Posted,
    Prompt,
    PromptClosed,
    Prompted,
    Refused,
    Replied,
    Request,
    Said,
    Say,
    Send,
    Step,
    Stepped,
    TurnBegan,
    TurnEnd,
    TurnEnded,
    TurnFailed,
)
from busd_plugins.stage.frames import Frames, question_of
from busd_plugins.stage.options import values_of
from busd_plugins.stage.schema import MESSAGES
from busd_plugins.stage.tellings import Telling, Tellings
from busd_plugins.stage.texts import text_in, text_of

_MAX_ID = 256
_WELCOME = "Welcome. Send a message to begin, or exit to end the session."
_WELCOME_BACK = "Welcome back. The session goes on."


class StageChat(Dialect):
    """One connection of a stage chat client."""

    prefix = "stage"
    messages = MESSAGES

    def __init__(self, hello: Hello) -> None:
        super().__init__(hello)
        self._session = hello.query.get("session_id", "").strip()[:_MAX_ID] or hello.new_id()
        self._wants_calls = hello.query.get("tool_calls", "").lower() in ("1", "true", "yes")
        self._frames = Frames(hello, self._session)
        self._author = Author(hello.user)
        self._is_welcome = False
        self._tellings = Tellings()
        self._prompts: dict[str, Prompt] = {}  # that wait for an answer, the latest last
        self._outcome: Done | Refused | None = None  # of the last effect that was performed

    def open(self) -> Effects:
        """Enter the session; the welcome is sent as soon as it is known to be new or not."""
        yield from self._perform(Enter(self._session, self._author, client=self.prefix))
        if self._refusal and self._refusal.rule == "unauthenticated":
            yield Close(self._refusal.reason, 1008)  # no frame of this format could change that

    def receive(self, frame: Frame) -> Effects:
        text, original = text_in(str(frame))
        if text.strip().lower() == "exit":
            yield Send(self._frames.typed("goodbye", "Goodbye. The session has ended."))
            yield Close()
            return
        if not self._is_welcome:
            yield from self.open()
            if not self._is_welcome:
                return
        entry = Entry(text=text, author=self._author, type="text", dialect=self.prefix)
        entry.original = original
        if self._prompts:
            yield from self._answer(next(reversed(self._prompts.values())), entry)
        elif not text.strip():
            yield from self._complain("The message is empty. Send a text.")
        else:
            yield from self._perform(Say(self._session, entry))

    def refuse(self, rule: str, reason: str) -> Effects:
        yield from self._complain(reason, rule)

    def show(self, event: Event) -> Effects:
        match event:
            case Done() | Refused():
                self._outcome = event
            case Entered():
                yield from self._entered(event)
            case Said() | Posted() if not event.is_own and text_of(event.entry):
                yield Send(self._frames.words(event.entry))
            case TurnBegan() | Delta():
                self._tellings.of(event.turn, is_own=event.is_own)
            case Stepped():
                telling = self._tellings.of(event.turn, is_own=event.is_own)
                yield from self._step(telling, event.step)
            case Prompted():
                telling = self._tellings.of(event.turn, is_own=event.is_own)
                yield from self._prompt(telling, event.prompt)
            case PromptClosed():
                self._prompts.pop(event.prompt.id, None)
            case Replied():
                yield from self._reply(event)
            case TurnFailed():
                yield from self._fail(event)
            case TurnEnded():
                yield from self._end(event)
            case _:
                pass

    # What a client asks for

    def _perform(self, request: Request) -> Effects:
        self._outcome = None
        yield request
        if refusal := self._refusal:
            yield from self._complain(refusal.reason, refusal.rule)

    @property
    def _refusal(self) -> Refused | None:
        return self._outcome if isinstance(self._outcome, Refused) else None

    def _answer(self, prompt: Prompt, entry: Entry) -> Effects:
        values = values_of(prompt, entry.text)
        if values is None:
            reason = "The answer is none of the options." if prompt.options else "An answer is due."
            yield from self._complain(f"{reason} {question_of(prompt)}", "option")
            return
        entry.prompt_id = prompt.id
        yield from self._perform(Answer(self._session, prompt.id, values, entry))

    def _complain(self, reason: str, code: str = "invalid") -> Effects:
        yield Send(self._frames.typed("exception", reason, code=code))

    # What a client is shown

    def _entered(self, event: Entered) -> Effects:
        self._frames.conversation_id = event.session_id
        if not self._is_welcome:
            self._is_welcome = True
            text = _WELCOME if event.is_new else _WELCOME_BACK
            info = {"is_existing_session": not event.is_new}
            yield Send(self._frames.typed("welcome", text, session_info=info))
        for entry in event.entries:
            yield from self._missed(entry)
        for turn in event.turns:
            telling = self._tellings.of(turn, is_own=turn.author.id == self._author.id)
            if turn.has_steps:
                yield from self._begin(telling)
            for prompt in event.prompts:
                if prompt.turn == turn.id and prompt.id not in self._prompts:
                    yield from self._prompt(telling, prompt)

    def _missed(self, entry: Entry) -> Effects:
        """Show what was said while the client was away."""
        if entry.kind == Kind.FAILURE:
            yield Send(self._frames.typed("exception", entry.text, parent=entry.turn))
        elif entry.kind == Kind.REPLY and entry.turn:
            yield Send(self._frames.response("initial_response", text_of(entry), entry.turn))
        elif (entry.author.id, entry.dialect) != (self._author.id, self.prefix) and text_of(entry):
            yield Send(self._frames.words(entry))

    def _begin(self, telling: Telling, content: str | None = None) -> Effects:
        """Send the `initial_response`, once: the text so far, or the final words."""
        if telling.is_own and not telling.is_begun:
            telling.is_begun = True
            text = telling.turn.text if content is None else content
            yield Send(self._frames.response("initial_response", text, telling.turn.id))

    def _step(self, telling: Telling, step: Step) -> Effects:
        """Show the use of a tool; other steps have no stage."""
        if not step.tool or not telling.is_own or step.id in telling.ended:
            return
        yield from self._begin(telling)
        if step.status != "in_progress":
            telling.tools.pop(step.id, None)
            telling.ended.add(step.id)
            yield Send(self._frames.tool_end(step, telling.turn.id))
        elif step.id not in telling.tools:
            telling.tools[step.id] = step
            if self._wants_calls:
                yield Send(self._frames.tool_call(step, telling.turn.id))

    def _end_tools(self, telling: Telling) -> Effects:
        """Show an end of the tools that have none: clients count on one for each."""
        for step in list(telling.tools.values()):
            reason = Raw(msgspec.json.encode("The tool has not finished."))
            ended = msgspec.structs.replace(step, status="failed", payload=reason)
            yield from self._step(telling, ended)

    def _prompt(self, telling: Telling, prompt: Prompt) -> Effects:
        """Put a prompt to its user, wherever that user is connected; the others only read it."""
        if telling.is_own or telling.turn.author.id == self._author.id:
            if prompt.input_type != "notification":
                self._prompts[prompt.id] = prompt
            yield Send(self._frames.prompt(prompt, telling.turn.id))
        else:
            yield Send(self._frames.spoken(telling.turn.agent, question_of(prompt)))

    def _reply(self, event: Replied) -> Effects:
        turn = event.turn
        telling = self._tellings.of(turn, is_own=event.is_own) if turn else None
        if telling is None or not telling.is_own:
            yield Send(self._frames.words(event.entry))
        elif telling.is_begun:
            yield from self._end_tools(telling)
            text = text_of(event.entry)
            yield Send(self._frames.response("final_response", text, telling.turn.id))
        else:
            yield from self._begin(telling, text_of(event.entry))

    def _fail(self, event: TurnFailed) -> Effects:
        telling = self._tellings.of(event.turn, is_own=event.is_own)
        yield from self._begin(telling)
        yield from self._end_tools(telling)
        more: dict[str, Any] = {"code": event.code}  # Any: what the agent says of it
        if event.details is not None:
            more["details"] = event.details
        if telling.is_own:
            parent = event.turn.id
            yield Send(self._frames.typed("exception", event.message, parent=parent, **more))
        else:
            yield Send(self._frames.spoken(event.turn.agent, event.message))

    def _end(self, event: TurnEnded) -> Effects:
        telling = self._tellings.of(event.turn, is_own=event.is_own)
        yield from self._begin(telling)
        yield from self._end_tools(telling)
        self._tellings.end(event.turn)
        if event.how == TurnEnd.CANCELLED and telling.is_own:
            frame = self._frames.typed("cancelled", "The answer was stopped.", parent=event.turn.id)
            frame["status"] = "warning"
            yield Send(frame)
