"""A room and its clients as the contract of dialects describes them, without store and bus.

What a dialect asks for is done at once, and all clients in the room are shown what follows from it,
as `busd/gateway/dialect.py` says. What agents do is told by the tests.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from busd.gateway import (
    Answer,
    Arrived,
    AskHistory,
    AskReaders,
    Authenticate,
    Author,
    Cancel,
    ChangeTask,
    Close,
    Delta,
    Departed,
    Done,
    Effect,
    Effects,
    Enter,
    Entered,
    Entry,
    Event,
    Expel,
    Hello,
    History,
    Invite,
    Kind,
    Leave,
    MarkRead,
    Notified,
    Notify,
    Option,
    Post,
    Posted,
    Prompt,
    PromptClosed,
    Prompted,
    PromptEnd,
    Read,
    Readers,
    Refused,
    Replied,
    Said,
    Say,
    Send,
    Step,
    Stepped,
    Task,
    TaskChanged,
    TaskUpdate,
    Turn,
    TurnBegan,
    TurnEnd,
    TurnEnded,
    TurnFailed,
)
from busd.gateway.merge_patch import merge
from busd_plugins.group import GroupChat

Json = dict[str, Any]
NOW = "2023-11-01T12:00:00.000Z"
ROOM = "group123"
_numbers = count(1)
TOKENS = {"令牌-张三": "user123", "令牌-李四": "user124"}


class Refusal(Exception):
    """A request is refused by a rule."""


class Hall:
    """One room."""

    def __init__(self, room: str = ROOM, members: tuple[str, ...] = ()) -> None:
        self.room = room
        self.session_id = f"session{next(_numbers)}"
        self.members = list(members)
        self.clients: list[Client] = []  # in the room
        self.entries: list[Entry] = []
        self.turns: dict[str, Turn] = {}
        self.prompts: dict[str, Prompt] = {}
        self.tasks: dict[str, Task] = {}
        self.readers: dict[str, dict[str, str]] = {}
        self.refusals: dict[type[Effect], str] = {}  # the rule by which requests are refused
        self.ids = count(1)
        self.replies = count(1)

    def open(self, user: str = "owner", **about: Any) -> Client:
        """Return a client that has connected."""
        client = Client(self, user, **about)
        client.run(client.dialect.open())
        return client

    def show(self, event: Event, own: Client | None = None) -> None:
        """Show an event to all clients in the room."""
        for client in list(self.clients):
            client.show(msgspec.structs.replace(event, is_own=client is own))

    def show_others(self, event: Event, but: Client) -> None:
        for client in list(self.clients):
            if client is not but:
                client.show(event)

    def keep(self, entry: Entry, kind: Kind | None = None) -> Entry:
        number = len(self.entries) + 1
        given = {"id": entry.id or f"entry{number}", "timestamp": entry.timestamp or NOW}
        kept = msgspec.structs.replace(entry, number=number, kind=kind or entry.kind, **given)
        self.entries.append(kept)
        return kept

    # What an agent does

    @property
    def turn(self) -> Turn:
        return list(self.turns.values())[-1]

    def delta(self, text: str) -> None:
        self.turn.text += text
        self.show(Delta(self.room, self.turn, text, False))

    def step(self, step: Step) -> None:
        self.show(Stepped(self.room, self.turn, step, False))

    def ask(self, input_type: str, text: str, *options: str, **about: Any) -> Prompt:
        given = tuple(Option(f"o{n}", label, f"v{n}") for n, label in enumerate(options, 1))
        about = {"id": f"prompt{len(self.prompts) + 1}", "timestamp": NOW, **about}
        about |= {"turn": self.turn.id, "input_type": input_type, "text": text, "options": given}
        prompt = msgspec.convert(about, Prompt)
        self.prompts[prompt.id] = prompt
        self.show(Prompted(self.room, self.turn, prompt, False))
        return prompt

    def close(self, prompt: Prompt, how: PromptEnd) -> None:
        del self.prompts[prompt.id]
        self.show(PromptClosed(self.room, prompt, how, False))

    def reply(self, text: str, turn: Turn | None = None, **about: Any) -> None:
        turn = turn or self.turn
        entry = Entry(text=text, id=turn.reply_id, author=turn.agent, turn=turn.id, **about)
        self.show(Replied(self.room, turn, self.keep(entry, Kind.REPLY), False))
        self.end(turn, TurnEnd.REPLIED)

    def fail(self, message: str, code: str = "agent_refused", details: Any = None) -> None:
        turn = self.turn
        entry = Entry(text=message, id=turn.reply_id, author=turn.agent, turn=turn.id)
        failed = TurnFailed(
            self.room,
            turn,
            code,
            message,
            Raw(msgspec.json.encode(details)) if details else None,
            "error",
            True,
            self.keep(entry, Kind.FAILURE),
            False,
        )
        self.show(failed)
        self.end(turn, TurnEnd.FAILED)

    def end(self, turn: Turn, how: TurnEnd) -> None:
        del self.turns[turn.reply_id]
        self.show(TurnEnded(self.room, turn, how, False))

    def change_task(
        self, task: Task, by: Author, action: str = "updated", dialect: str = ""
    ) -> TaskChanged:
        old = self.tasks.get(task.task_id, Task(task_id=task.task_id))
        values = msgspec.structs.asdict(task)
        changed = {name: value for name, value in values.items() if value is not UNSET}
        status = "" if task.status is UNSET else task.status
        update = TaskUpdate(NOW, by, status, task.progress)
        changed["history"] = (*old.history, update)
        if task.data is not UNSET and old.data is not UNSET:
            changed["data"] = merge(old.data, task.data)
        self.tasks[task.task_id] = new = msgspec.structs.replace(old, **changed)
        return TaskChanged(self.room, new, action, by, False, dialect)


class Client:
    """One connection: `frames` is what it got, `effects` what its dialect asked for."""

    def __init__(
        self,
        hall: Hall,
        user: str = "owner",
        *,
        is_owner: bool | None = None,
        signs: bool = True,
    ) -> None:
        self.hall = hall
        self.frames: list[Json] = []
        self.effects: list[Effect] = []
        self.now = NOW
        self.author: Author | None = None
        self.is_closed = False
        self.hello = Hello(
            path=f"/ws/messaging/{hall.room}/",
            room=hall.room,
            user=user,
            is_owner=user == "owner" if is_owner is None else is_owner,
            new_id=lambda: f"00000000-0000-4000-8000-{next(hall.ids):012}",
            now=lambda: self.now,
            sign=sign if signs else lambda url: "",
        )
        self.dialect = GroupChat(self.hello)

    def send(self, frame: Json | str) -> list[Json]:
        """Send a frame and return what the client got since."""
        before = len(self.frames)
        text = frame if isinstance(frame, str) else msgspec.json.encode(frame).decode()
        self.effects.clear()
        self.run(self.dialect.receive(text))
        return self.frames[before:]

    def show(self, event: Event) -> None:
        for effect in self.dialect.show(event):
            self._take(effect)

    def run(self, effects: Effects) -> None:
        for effect in effects:
            self._take(effect)
            if isinstance(effect, Notify):
                told = Notified(effect.conversation, effect.kind, effect.by, effect.data)
                self.hall.show_others(told, self)
            elif not isinstance(effect, Send | Close):
                self._request(effect)

    def _take(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            # What is no strict JSON cannot be sent.
            self.frames.append(msgspec.json.decode(msgspec.json.encode(effect.frame)))
        elif isinstance(effect, Close):
            self.is_closed = True
        else:
            self.effects.append(effect)

    def _request(self, request: Any) -> None:
        try:
            self._perform(request)
        except Refusal as refusal:
            rule, detail = (*refusal.args, "")[:2]
            self.show(Refused(request, rule, "the reason, in English", detail=detail))

    def _perform(self, request: Any) -> None:
        hall, user = self.hall, self.hello.user
        if rule := hall.refusals.get(type(request)):
            raise Refusal(rule)
        if isinstance(request, Authenticate):
            name = TOKENS.get(request.token, "")
            if not name or (self in hall.clients and name != user and not self.hello.is_owner):
                raise Refusal("authentication")
            if not user or self not in hall.clients:
                self.hello.user, self.hello.is_owner = name, False
            self.show(Done(request, detail=self.hello.user))
        elif not user:
            raise Refusal("unauthenticated")
        elif isinstance(request, Enter):
            self._enter(request)
        elif self not in hall.clients:
            raise Refusal("conversation")
        else:
            follows: list[Event] = []
            done = self._done(request, follows)
            self.show(done)
            for event in follows:
                hall.show(event, self)

    def _enter(self, request: Enter) -> None:
        hall = self.hall
        is_new = not hall.members
        if is_new:
            hall.members.append(self.hello.user)
        if self.hello.user not in hall.members:
            raise Refusal("member")
        was_here = self in hall.clients
        if not was_here:
            hall.clients.append(self)
        before, self.author = self.author, request.author or Author(self.hello.user)
        present = [client.author for client in hall.clients if client.author]
        number = next((e.number for e in hall.entries if e.id == request.after), 0)
        entries = hall.entries[number:] if request.after else hall.entries[-request.last :]
        self.show(
            Entered(
                conversation=hall.room,
                is_new=is_new,
                session_id=hall.session_id,
                present=present,
                entries=entries if request.last or request.after else [],
                turns=list(hall.turns.values()),
                prompts=list(hall.prompts.values()),
                tasks=list(hall.tasks.values()),
                members=list(hall.members),
            )
        )
        self.show(Done(request))
        if not was_here or before != self.author:
            hall.show_others(Arrived(hall.room, self.author), self)

    def _done(self, request: Any, follows: list[Event]) -> Done:
        hall, room = self.hall, self.hall.room
        entry: Entry | None = getattr(request, "entry", None)
        if entry is not None and any(kept.id == entry.id for kept in hall.entries if entry.id):
            kept = next(kept for kept in hall.entries if kept.id == entry.id)
            return Done(request, kept, is_duplicate=True)
        match request:
            case Say():
                kept = hall.keep(request.entry, Kind.WORDS)
                follows.append(Said(room, kept, False))
                named = request.agents if request.agents is not None else None
                for agent in () if named is None else (named or ("",)):
                    turn = Turn(
                        id=kept.id,
                        agent=Author(agent, "agent", agent),
                        author=kept.author,
                        reply_id=f"reply{next(hall.replies)}",
                    )
                    hall.turns[turn.reply_id] = turn
                    follows.append(TurnBegan(room, turn, False))
                return Done(request, kept)
            case Post():
                kept = hall.keep(request.entry, Kind.POST)
                follows.append(Posted(room, kept, False))
                return Done(request, kept)
            case Answer():
                prompt = hall.prompts.pop(request.prompt_id, None)
                if prompt is None:
                    raise Refusal("prompt", request.prompt_id)
                kept = hall.keep(request.entry, Kind.WORDS)
                follows += [
                    Said(room, kept, False),
                    PromptClosed(room, prompt, PromptEnd.ANSWERED, False),
                ]
                return Done(request, kept)
            case ChangeTask():
                by = request.by or Author(self.hello.user)
                follows.append(hall.change_task(request.task, by, request.action, "group"))
            case Cancel():
                for turn in [t for t in hall.turns.values() if t.id == request.turn]:
                    hall.end(turn, TurnEnd.CANCELLED)
            case MarkRead():
                for entry_id in request.ids:
                    hall.readers.setdefault(entry_id, {})[request.by.id] = NOW
                follows.append(Read(room, request.ids, request.by, False))
            case AskReaders():
                self.show(Readers(room, {i: hall.readers.get(i, {}) for i in request.ids}))
            case AskHistory():
                before = [e for e in hall.entries if e.number < (request.before or 1_000_000)]
                shown = before[-request.last :]
                self.show(History(room, shown, len(before) > len(shown)))
            case Invite():
                hall.members.append(request.user)
                hall.show_others(Arrived(room, Author(request.user), is_member=True), self)
            case Expel():
                hall.members.remove(request.user)
                hall.show_others(Departed(room, Author(request.user), is_member=True), self)
            case Leave():
                hall.clients.remove(self)
            case _:
                raise AssertionError(request)
        return Done(request)

    def leave(self) -> None:
        """Lose the connection."""
        self.hall.clients.remove(self)
        if self.author:
            self.hall.show_others(Departed(self.hall.room, self.author), self)


def sign(url: str) -> str:
    is_web = url.startswith(("http://", "https://"))
    return f"http://127.0.0.1:7893/files/{url.rsplit('/', 1)[-1]}?signed" if is_web else ""
