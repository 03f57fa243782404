"""What is said: from the messages of clients to entries of a conversation."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, UnsetType

from busd.gateway import Answer, Author, Entry, Notify, Post, Request, Say
from busd_plugins.tkr.connection import Connection
from busd_plugins.tkr.frames import ERROR_SUFFIX
from busd_plugins.tkr.messages import Incoming
from busd_plugins.tkr.values import raw_of

STREAMING = "tkr.streaming"  # a part of what an agent that is a client says


def request_of(connection: Connection, message: Incoming, author: Author) -> Request:
    """Return the request that a text, an agent's message, a notice or an error makes.

    A user's text that names no agent is for the one that the client has connected to. What an agent
    says to nobody, notices and errors are shown, but tell no agent.
    """
    entry = entry_of(message, author)
    if message.type in ("system", "error") or (author.type == "agent" and not message.targets):
        return Post(message.session, entry)
    agents = message.targets
    if not agents and connection.agent and not connection.is_agent:
        agents = (connection.agent,)
    entry.to = agents
    return Say(message.session, entry, agents)


def answer_of(message: Incoming, author: Author, prompt_id: str, values: tuple[str, ...]) -> Answer:
    """Return the request that a text makes which answers a prompt."""
    entry = entry_of(message, author)
    entry.prompt_id = prompt_id
    return Answer(message.session, prompt_id, values, entry)


def partial(message: Incoming, author: Author) -> Notify:
    """Show the others a part of a text whose end is still to come; it is not kept."""
    said = {"id": message.id, "content": message.text, "timestamp": message.timestamp}
    return Notify(message.session, STREAMING, author, raw_of(said))


def entry_of(message: Incoming, author: Author) -> Entry:
    """Return what is kept of a message."""
    kind = "agent_message" if message.type == "a2a" else message.type
    return Entry(
        text=message.text,
        id=str(message.id),
        author=author,
        timestamp=str(message.timestamp),
        type=kind,
        dialect="tkr",
        to=message.targets,
        reply_to=str(message.in_reply_to or "").removesuffix(ERROR_SUFFIX),
        thread_id=str(message.thread_id or ""),
        metadata=_metadata(message, kind),
        original=message.original,
    )


def _metadata(message: Incoming, kind: str) -> Raw | UnsetType:
    """Return what agents are told beside the text."""
    said: dict[str, Any] = dict(message.metadata or {})
    if kind == "agent_message":
        said.setdefault("type", kind)
        if message.task_id:
            said.setdefault("task_id", message.subject)
    return raw_of(said) if said else UNSET
