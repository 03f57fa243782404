"""What the gateway and agents write to each other: conversations in the words of the bus."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.gateway.conversation import (
    Attachment,
    Author,
    Entry,
    Prompt,
    Step,
    Task,
)
from busd.gateway.stored import Outgoing
from busd.rpc.reading import Id
from busd.vocabulary.bub import AgentEvent, TgMessage
from busd.vocabulary.payload import decode_payload, message, write_message
from busd.vocabulary.turn_events import TurnPrompt, TurnStep

_encode = msgspec.json.Encoder().encode
MAX_OPTIONS = 1_000
TASK_EVENTS = {f"task.{action}": action for action in ("created", "updated", "cancelled")}


# What agents say


@message("tg_reply", beside=("reply_to_message_id", "chat_id"))
class AgentReply(msgspec.Struct):
    """A `tg_reply` with all that an agent may add to it."""

    text: str
    reply_to_message_id: Id | None = None
    prompt_id: Id | None = None
    thread_id: Id | None = None
    attachments: tuple[Attachment, ...] = ()
    mentions: tuple[Author, ...] = ()
    metadata: Raw | UnsetType = UNSET


def step_of(said: TurnStep) -> Step:
    """Return a step as dialects know it."""
    return Step(
        id=str(said.id),
        name=said.shown_name,
        parent=_text(said.parent),
        tool=said.tool,
        arguments=said.arguments,
        payload=said.payload,
        status=said.known_status,
        code=said.code,
    )


def prompt_of(said: TurnPrompt, turn: str, timestamp: str) -> Prompt:
    """Return a prompt as dialects know it."""
    seconds = said.timeout_seconds
    return Prompt(
        id=str(said.id),
        turn=turn,
        input_type=said.known_input_type,
        text=said.text,
        options=said.full_options,
        placeholder=said.placeholder,
        required=said.required,
        timestamp=timestamp,
        seconds_left=None if seconds is None else max(seconds, 0.0),
    )


class TaskReport(msgspec.Struct):
    """The data of `task.created`, `task.updated` and `task.cancelled`."""

    task_id: Id
    kind: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    progress: float | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    title: str | UnsetType = UNSET
    assignees: tuple[Author, ...] | UnsetType = UNSET
    data: dict[str, Raw] | UnsetType = UNSET

    def as_task(self) -> Task:
        return Task(
            task_id=str(self.task_id),
            kind=self.kind,
            status=self.status,
            progress=self.progress,
            result=self.result,
            title=self.title,
            assignees=self.assignees,
            data=UNSET if self.data is UNSET else Raw(_encode(self.data)),
        )


class ContextReport(msgspec.Struct):
    """The data of `context.updated`."""

    context_id: Id
    context_data: Raw = Raw(b"{}")
    target_agents: tuple[str, ...] = ()


def _text(said: Id | None) -> str:
    return "" if said is None else str(said)


# What the gateway says


class Chat(msgspec.Struct, frozen=True):
    """How agents know a conversation."""

    address: str
    session_id: str
    channel: str


def words_for_agent(chat: Chat, entry: Entry, text: str | None = None) -> bytes:
    """Return a user's words as a `tg_message`, with another text if it stands for an answer."""
    said = TgMessage(
        text=entry.text if text is None else text,
        senderId=entry.author.id,
        channel=chat.channel,
        chat_id=chat.session_id,
        full_name=entry.author.name or entry.author.id,
        thread_id=entry.thread_id or UNSET,
        prompt_id=entry.prompt_id or UNSET,
        metadata=entry.metadata,
        attachments=_encoded(entry.attachments),
        mentions=_encoded(entry.mentions),
    )
    return bytes(
        write_message(said, sender=chat.address, timestamp=entry.timestamp, message_id=entry.id)
    )


def _encoded(values: Iterable[msgspec.Struct]) -> list[Raw] | UnsetType:
    return [Raw(_encode(each)) for each in values] or UNSET


def event_for_agent(chat: Chat, event: str, data: dict[str, Any], timestamp: str) -> bytes:
    """Return an `agent_event` of a conversation."""
    placed = data | {"channel": chat.channel, "chat_id": chat.session_id}
    told = AgentEvent(event, Raw(_encode(placed)))
    return bytes(write_message(told, sender=chat.address, timestamp=timestamp))


def task_data(task: Task) -> dict[str, Any]:
    """Return a task as agents get it: everything but its history."""
    members = {name: getattr(task, name) for name in Task.__struct_fields__ if name != "history"}
    return {name: value for name, value in members.items() if value is not UNSET}


def context_data(context_id: str, data: Raw, agents: tuple[str, ...]) -> dict[str, Any]:
    """Return shared data as agents get them."""
    return {"context_id": context_id, "context_data": data, "target_agents": agents}


# Messages that begin turns


_WORDS_ID = re.compile(r"(.+)\.([1-9][0-9]{0,17})\.[0-9]{1,9}")


def words_id(session_id: str, number: int, slot: int) -> str:
    """Return the id of a message that begins a turn."""
    return f"{session_id}.{number}.{slot}"


def number_of_words(session_id: str, message_id: str) -> int:
    """Return the number of the entry whose words a message has brought; 0 if it is no such id."""
    found = _WORDS_ID.fullmatch(message_id)
    return int(found[2]) if found and found[1] == session_id else 0


def turn_of(row: Outgoing) -> tuple[str, int] | None:
    """Return the key of the turn that a message begins; None if it begins none."""
    if not row.number or not row.message_id.endswith(f".{row.number}.{row.slot}"):
        return None
    try:
        return str(decode_payload(Raw(row.payload)).message_id), row.slot
    except msgspec.MsgspecError:
        return None  # somebody has been at the file
