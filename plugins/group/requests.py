"""What the messages of a client in its room ask for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw

from busd.gateway import (
    Answer,
    AskReaders,
    Author,
    Cancel,
    ChangeTask,
    Effects,
    Hello,
    Kind,
    MarkRead,
    Notify,
    Post,
    Prompt,
    Say,
    Task,
)
from busd_plugins.group.answers import answer_in_words, chosen
from busd_plugins.group.errors import Invalid
from busd_plugins.group.messages import Message, Type
from busd_plugins.group.notices import MAX_TYPING_BYTES, Typing, is_typing, read_ids
from busd_plugins.group.outcomes import Outcomes
from busd_plugins.group.payloads import complete_payload
from busd_plugins.group.room import Room
from busd_plugins.group.tracked import (
    action_of,
    choices_of,
    first_state,
    labels,
    named_id,
    read_state,
    receivers,
    vote,
)
from busd_plugins.group.words import WORDS, addressed_agents, entry_of

_encode = msgspec.json.encode
Mentioned = list[Author]


class Requests:
    """Turns the messages of one client into requests."""

    def __init__(self, hello: Hello, room: Room, outcomes: Outcomes) -> None:
        self._hello = hello
        self._room = room
        self._perform = outcomes.perform
        self._typing = Typing(hello.now)
        self._by_type: dict[Type, Callable[[Message, Mentioned], Effects]] = {
            "chat": self._chat,
            "task": self._tracked,
            "poll": self._poll,
            "decision": self._tracked,
            "handoff": self._tracked,
            "task_update": self._update,
            "status": self._status,
            "typing": self._type,
            "read_receipt": self._read,
        }

    def of(self, message: Message) -> Effects:
        """Return what a message asks for; raise Invalid."""
        mentions = complete_payload(message, self._room.name, self._room.people)
        self._room.spoken_by(message.sender)
        yield from self._by_type.get(message.type, self._say)(message, mentions)

    def _say(self, message: Message, mentions: Mentioned) -> Effects:
        yield from self._perform(self._kept(message, mentions))

    def _kept(self, message: Message, mentions: Mentioned) -> Say | Post:
        """Return the request that keeps a message, and tells agents if it is for some."""
        if message.type not in WORDS or message.sender.type != "user":
            return Post(self._room.name, entry_of(message, mentions))
        agents = addressed_agents(message, mentions, self._room)
        return Say(self._room.name, entry_of(message, mentions, Kind.WORDS), agents)

    def _post(self, message: Message, mentions: Mentioned) -> Post:
        return Post(self._room.name, entry_of(message, mentions))

    def _chat(self, message: Message, mentions: Mentioned) -> Effects:
        if message.sender.type == "user" and (found := answer_in_words(message, self._room)):
            yield from self._answer(message, *found)
        else:
            yield from self._say(message, mentions)

    def _answer(self, message: Message, prompt: Prompt, values: tuple[str, ...]) -> Effects:
        entry = entry_of(message, (), Kind.WORDS, prompt_id=prompt.id)
        yield from self._perform(Answer(self._room.name, prompt.id, values, entry))

    # Tasks, polls, decisions and handoffs

    def _tracked(self, message: Message, mentions: Mentioned) -> Effects:
        """Create what is tracked, or change it if it is known."""
        known = self._room.tasks.get(named_id(message.type, message.payload))
        if known is not None and known.entry_id != message.id:
            yield from self._change(message, mentions, read_state(message))
            return
        message.id = message.frame["message_id"] = message.id or self._hello.new_id()
        task = first_state(message)
        kept = self._kept(message, mentions)
        done = yield from self._perform(kept)
        if done is None or done.is_duplicate:
            return
        agents = (kept.agents or None) if isinstance(kept, Say) else None
        yield from self._change_task(task, message, "created", agents)
        reassigned = self._room.tasks.get(str(message.payload.get("task_id", "")))
        if message.type == "handoff" and reassigned and reassigned.task_id != task.task_id:
            task = Task(task_id=reassigned.task_id, assignees=receivers(message))
            yield from self._change_task(task, message, "updated", agents)

    def _change_task(
        self, task: Task, message: Message, action: str, agents: tuple[str, ...] | None
    ) -> Effects:
        request = ChangeTask(self._room.name, task, action, message.sender, agents)
        yield from self._perform(request)

    def _update(self, message: Message, mentions: Mentioned) -> Effects:
        task = read_state(message)
        if not task.task_id:
            raise Invalid("payload.task_id", "缺失")
        if task.task_id not in self._room.tasks:
            raise Invalid("payload.task_id", "没有这个任务")
        yield from self._change(message, mentions, task)

    def _change(self, message: Message, mentions: Mentioned, task: Task) -> Effects:
        """Change what is tracked first: the message that tells of it shows the new state."""
        known = self._room.tasks[task.task_id]
        assignees = task.assignees or known.assignees or ()
        agents = tuple(author.id for author in assignees if author.type == "agent")
        request = ChangeTask(self._room.name, task, action_of(task), message.sender, agents or None)
        if (yield from self._perform(request)):
            for name in ("status", "progress"):
                value = getattr(task, name) or getattr(known, name)
                if value is not UNSET:
                    message.payload.setdefault(name, value)
            yield from self._perform(self._post(message, mentions))

    def _poll(self, message: Message, mentions: Mentioned) -> Effects:
        choices = choices_of(message.payload)
        if choices is None:
            yield from self._tracked(message, mentions)
            return
        poll_id = named_id(message.type, message.payload) or message.payload.get("reply_to", "")
        if not poll_id:
            raise Invalid("payload.poll_id", "缺失")
        if task := self._poll_named(poll_id):
            change, words = vote(task, choices, message.sender)
            message.payload["poll_id"] = task.task_id
            message.payload.setdefault("text", words)
            yield from self._change(message, mentions, change)
            return
        values = tuple(choices)
        if found := self._room.questions.get(poll_id):
            options = chosen(found[0], choices)
            values = tuple(option.value for option in options)
            message.payload.setdefault("text", labels(options))
        entry = entry_of(message, (), Kind.WORDS, prompt_id=poll_id)
        # Which questions are open is the host's to say.
        yield from self._perform(Answer(self._room.name, poll_id, values, entry))

    def _poll_named(self, poll_id: str) -> Task | None:
        """Return the poll with this id, or whose message has it."""
        for task in self._room.tasks.values():
            if task.kind == "poll" and poll_id in (task.task_id, task.entry_id):
                return task
        return None

    # What is not said

    def _status(self, message: Message, mentions: Mentioned) -> Effects:
        """Keep a status; "cancelled" in reply to words cancels the answers to them."""
        reply_to = message.payload.get("reply_to", "")
        if message.payload.get("status") == "cancelled" and reply_to:
            yield from self._perform(Cancel(self._room.name, reply_to))
        else:
            yield from self._say(message, mentions)

    def _type(self, message: Message, mentions: Mentioned) -> Effects:
        typing = is_typing(message.payload)
        if self._typing.is_news(typing):
            data = _encode({**message.payload, "is_typing": typing})
            if len(data) > MAX_TYPING_BYTES:  # it goes to all others, and is stored nowhere
                raise Invalid("payload", f"超过{MAX_TYPING_BYTES}字节")
            yield Notify(self._room.name, "typing", message.sender, Raw(data))

    def _read(self, message: Message, mentions: Mentioned) -> Effects:
        ids = read_ids(message.payload)
        if message.payload.get("query") is True:
            yield from self._perform(AskReaders(self._room.name, ids))
        else:
            yield from self._perform(MarkRead(self._room.name, ids, message.sender))
