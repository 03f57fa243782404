"""A client's line to a dialect, without sockets, store and bus: effects are performed at once.

It does what the contract in `busd/gateway/dialect.py` promises, for one client and one agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from busd.gateway import (
    Answer,
    Authenticate,
    Author,
    Close,
    Delta,
    Dialect,
    Done,
    Effect,
    Enter,
    Entered,
    Entry,
    Event,
    Hello,
    Kind,
    Leave,
    Option,
    Post,
    Posted,
    Prompt,
    PromptClosed,
    Prompted,
    PromptEnd,
    Refused,
    Replied,
    Said,
    Say,
    Send,
    Step,
    Stepped,
    Turn,
    TurnBegan,
    TurnEnd,
    TurnEnded,
    TurnFailed,
)

Frame = dict[str, Any]
NOW = "2025-01-13T10:00:00.000Z"
AGENT = Author("bob", "agent", "Bob")


class Line:
    """One connection: `frames` is what the client got, `effects` what the dialect asked for."""

    def __init__(
        self,
        dialect: type[Dialect],
        query: Mapping[str, str] | None = None,
        *,
        user: str = "ann",
        tokens: Mapping[str, str] | None = None,
        entered: Iterable[Entered] = (),
    ) -> None:
        ids, query = count(1), dict(query or {})
        self.user = user
        self.frames: list[Frame] = []
        self.effects: list[Effect] = []
        self.closed: Close | None = None
        self.refusals: dict[type[Effect], Refused] = {}  # of the next effect of a type
        self.turns: dict[str, Turn] = {}  # that run, by their conversation
        self.prompts: dict[str, tuple[str, Prompt]] = {}  # open ones, with their conversation
        self._tokens = dict(tokens or {})
        self._entered = {each.conversation: each for each in entered}
        self._said: set[tuple[str, str]] = set()
        self._numbers = count(1)
        hello = Hello(
            query=query,
            user=user,
            new_id=lambda: f"new-{next(ids)}",
            now=lambda: NOW,
            sign=lambda url: url,
        )
        self.dialect = dialect(hello)

    # What the client does; returned are the frames that it gets

    def open(self) -> list[Frame]:
        return self._run(self.dialect.open())

    def send(self, frame: str | Frame) -> list[Frame]:
        text = frame if isinstance(frame, str) else msgspec.json.encode(frame).decode()
        return self._run(self.dialect.receive(text))

    def refuse(self, rule: str, reason: str) -> list[Frame]:
        """Let the host keep a frame back."""
        return self._run(self.dialect.refuse(rule, reason))

    # What others do

    def show(self, *events: Event) -> list[Frame]:
        before = len(self.frames)
        for event in events:
            for effect in self.dialect.show(event):
                assert isinstance(effect, Send | Close), f"{effect} for an event"
                self._perform(effect)
        return self.frames[before:]

    def delta(self, text: str, conversation: str = "") -> list[Frame]:
        name, turn = self._turn(conversation)
        turn.text += text
        return self.show(Delta(name, turn, text, is_own=True))

    def step(self, conversation: str = "", **about: Any) -> list[Frame]:
        name, turn = self._turn(conversation)
        for member in ("arguments", "payload"):
            if member in about:
                about[member] = Raw(msgspec.json.encode(about[member]))
        turn.has_steps = True
        return self.show(Stepped(name, turn, Step(**about), is_own=True))

    def ask(self, conversation: str = "", **about: Any) -> list[Frame]:
        name, turn = self._turn(conversation)
        options = tuple(msgspec.convert(each, Option) for each in about.pop("options", ()))
        prompt = Prompt(turn=turn.id, options=options, **{"id": "p1", "timestamp": NOW, **about})
        self.prompts[prompt.id] = name, prompt
        return self.show(Prompted(name, turn, prompt, is_own=True))

    def reply(self, text: str, conversation: str = "", **about: Any) -> list[Frame]:
        name, turn = self._turn(conversation)
        entry = self.entry(text, author=AGENT, kind=Kind.REPLY, turn=turn.id, **about)
        frames = self.show(Replied(name, turn, entry, is_own=True))
        return frames + self._end(name, TurnEnd.REPLIED)

    def fail(self, code: str, message: str, conversation: str = "") -> list[Frame]:
        name, turn = self._turn(conversation)
        entry = self.entry(message, author=AGENT, kind=Kind.FAILURE, turn=turn.id)
        failed = TurnFailed(name, turn, code, message, None, "error", True, entry, is_own=True)
        frames = self.show(failed)
        return frames + self._end(name, TurnEnd.FAILED)

    def cancel(self, conversation: str = "") -> list[Frame]:
        name, _ = self._turn(conversation)
        return self._end(name, TurnEnd.CANCELLED)

    def time_out(self, prompt_id: str = "p1") -> list[Frame]:
        """Let the time of a prompt pass: its agent reports the failure."""
        name, _ = self.prompts[prompt_id]
        closed = self._close(prompt_id, PromptEnd.TIMED_OUT)
        return closed + self.fail("prompt_timeout", "nobody answered in time", name)

    def entry(self, text: str, **about: Any) -> Entry:
        number = next(self._numbers)
        defaults: dict[str, Any] = {"id": f"entry-{number}", "number": number, "timestamp": NOW}
        return Entry(text=text, **{**defaults, **about})

    def _turn(self, conversation: str) -> tuple[str, Turn]:
        name = conversation or next(reversed(self.turns))
        return name, self.turns[name]

    def _end(self, name: str, how: TurnEnd) -> list[Frame]:
        turn, frames = self.turns.pop(name), []
        for prompt_id in [
            each for each, (_, prompt) in self.prompts.items() if prompt.turn == turn.id
        ]:
            frames += self._close(prompt_id, PromptEnd.TURN_ENDED)
        return frames + self.show(TurnEnded(name, turn, how, is_own=True))

    def _close(self, prompt_id: str, how: PromptEnd) -> list[Frame]:
        name, prompt = self.prompts.pop(prompt_id)
        return self.show(PromptClosed(name, prompt, how, is_own=True))

    # What the hub does

    def _run(self, effects: Iterable[Effect]) -> list[Frame]:
        before = len(self.frames)
        for effect in effects:
            self._perform(effect)
        return self.frames[before:]

    def _perform(self, effect: Effect) -> None:
        self.effects.append(effect)
        if isinstance(effect, Send):
            assert self.closed is None, "sent after Close"
            self.frames += frames_in([effect])
            check(self.frames[-1], type(self.dialect))
        elif isinstance(effect, Close):
            self.closed = effect
        elif refusal := self.refusals.pop(type(effect), None):
            refusal.request = effect  # type: ignore[assignment]  # a request: no output is refused
            self.show(refusal)
        elif isinstance(effect, Authenticate):
            self._authenticate(effect)
        elif isinstance(effect, Enter):
            self._enter(effect)
        elif isinstance(effect, Say):
            self._say(effect)
        elif isinstance(effect, Answer):
            self._answer(effect)
        elif isinstance(effect, Post):
            effect.entry.id = effect.entry.id or f"kept-{next(self._numbers)}"
            posted = Posted(effect.conversation, effect.entry, is_own=True)
            self.show(Done(effect, effect.entry), posted)
        else:
            assert isinstance(effect, Leave), effect
            self.show(Done(effect))

    def _authenticate(self, effect: Authenticate) -> None:
        if effect.token not in self._tokens:
            reason = "this token is unknown; ask the owner of the bus for one"
            self.show(Refused(effect, "authentication", reason))
            return
        self.user = self._tokens[effect.token]
        self.show(Done(effect, detail=self.user))

    def _enter(self, effect: Enter) -> None:
        if not self.user:
            self.show(Refused(effect, "unauthenticated", "send a token first"))
            return
        name = effect.conversation
        running = [self.turns[name]] if name in self.turns else []
        entered = self._entered.pop(name, None) or new_conversation(name, turns=running)
        for turn in entered.turns:
            self.turns[name] = turn
        for prompt in entered.prompts:
            self.prompts[prompt.id] = name, prompt
        self.show(entered, Done(effect))

    def _say(self, effect: Say) -> None:
        name, entry = effect.conversation, effect.entry
        entry.id = entry.id or f"kept-{next(self._numbers)}"
        if (name, entry.id) in self._said:
            self.show(Done(effect, entry, is_duplicate=True))
            return
        self._said.add((name, entry.id))
        if effect.interrupts and name in self.turns:
            self._end(name, TurnEnd.CANCELLED)
        thread = entry.thread_id
        turn = Turn(id=entry.id, agent=AGENT, author=entry.author, thread_id=thread, timestamp=NOW)
        self.turns[name] = turn
        self.show(Done(effect, entry), Said(name, entry, is_own=True))
        self.show(TurnBegan(name, turn, is_own=True))

    def _answer(self, effect: Answer) -> None:
        name, prompt = self.prompts.get(effect.prompt_id, ("", None))
        if prompt is None or name != effect.conversation:
            self.show(Refused(effect, "prompt", "this prompt is not open", detail=effect.prompt_id))
            return
        values = [option.value for option in prompt.options]
        if values and (wrong := set(effect.values) - set(values)):
            reason = f"the prompt has no such option; it has {', '.join(values)}"
            self.show(Refused(effect, "option", reason, detail=min(wrong)))
            return
        self.show(Done(effect, effect.entry), Said(name, effect.entry, is_own=True))
        self._close(effect.prompt_id, PromptEnd.ANSWERED)

    # What a test looks at

    def asked_for(self, kind: type[Any]) -> list[Any]:
        """Return the effects of one type, for instance all `Say`."""
        return [effect for effect in self.effects if isinstance(effect, kind)]


def new_conversation(name: str, **about: Any) -> Entered:
    """Return what is shown when a conversation is entered."""
    empty: dict[str, Any] = {key: [] for key in ("present", "entries", "turns", "prompts", "tasks")}
    return Entered(
        conversation=name, **{"is_new": True, "session_id": f"s-{name}", **empty, **about}
    )


def frames_in(outputs: Iterable[object]) -> list[Frame]:
    """Return the frames among what a client is sent, as they arrive."""
    sent = [each.frame for each in outputs if isinstance(each, Send)]
    return [msgspec.json.decode(msgspec.json.encode(frame)) for frame in sent]


def check(frame: Frame, dialect: type[Dialect]) -> None:
    """Check that a frame is of one of the kinds that a dialect declares."""
    problems = []
    for kind in dialect.messages:
        if kind.direction == "send":
            try:
                msgspec.convert(frame, kind.struct)
                return
            except msgspec.ValidationError as problem:
                problems.append(f"{kind.name}: {problem}")
    raise AssertionError(f"{frame} is not declared:\n" + "\n".join(problems))


def given(value: Any) -> Any:
    """Return a JSON value that may be unset."""
    return None if value is UNSET else msgspec.json.decode(value)
