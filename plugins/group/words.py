"""Messages as entries of a conversation, and which agents they are for."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from busd.gateway import Author, Entry, Kind
from busd_plugins.group.files import read_attachments
from busd_plugins.group.messages import Message
from busd_plugins.group.payloads import authors_of
from busd_plugins.group.people import DEFAULT_AGENT
from busd_plugins.group.room import PREFIX, Room
from busd_plugins.group.tracked import receivers, words_of

_encode = msgspec.json.encode
# Messages of these types are for agents, if they mention or concern one.
WORDS = {
    *("chat", "image", "file", "voice", "rich_text", "markdown"),
    *("task", "poll", "decision", "handoff"),
}
_TITLES = {"image": "[图片]", "file": "[文件]", "voice": "[语音]"}


def entry_of(
    message: Message, mentions: Iterable[Author], kind: Kind = Kind.POST, *, prompt_id: str = ""
) -> Entry:
    """Return the entry that keeps a message, all of its members in it; raise Invalid."""
    payload = message.payload
    files = read_attachments(message.type, payload)
    text = words_of(message)
    if not text and message.type in _TITLES:
        text = " ".join([_TITLES[message.type], *(file.name for file in files if file.name)])
    return Entry(
        text=text,
        id=message.id,
        author=message.sender,
        timestamp=message.timestamp,
        kind=kind,
        type=message.type,
        dialect=PREFIX,
        reply_to=payload.get("reply_to", ""),
        thread_id=payload.get("thread_id", ""),
        prompt_id=prompt_id,
        attachments=files,
        mentions=tuple(dict.fromkeys([*mentions, *_concerned(message)])),
        metadata=Raw(_encode(message.frame["metadata"])),
        original=Raw(_encode(message.frame)),
    )


def addressed_agents(
    message: Message, mentions: Iterable[Author], room: Room
) -> tuple[str, ...] | None:
    """Return the agents that get a message: (): the default one, None: nobody.

    Those are the agents that it mentions, that a task is assigned to, that something is handed over
    to, or whose answer it replies to. A message that concerns nobody is for the default one, if
    only one user is in the room.
    """
    concerned = [*mentions, *_concerned(message)]
    if answerer := room.people.answerer(message.payload.get("reply_to", "")):
        concerned.append(answerer)
    agents = [author.id for author in concerned if author.type == "agent"]
    named = tuple(dict.fromkeys(name for name in agents if name != DEFAULT_AGENT.id))
    if named:
        return named
    is_for_people = any(author.type == "user" for author in concerned)
    is_for_default = not is_for_people and room.is_private(message.sender)
    return () if agents or is_for_default else None


def _concerned(message: Message) -> list[Author]:
    """Return whom a message concerns beside those it mentions."""
    assigned = authors_of(message.payload.get("assignees", []))
    return [*assigned, *receivers(message)] if message.type == "handoff" else assigned
