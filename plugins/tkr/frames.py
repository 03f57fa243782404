"""The messages that clients are sent, in both spellings at once.

A frame has the members of the standard spelling, those of the legacy one, and additive ones. What
the user interface of the original is to show although it is no agent's text also has `message` and
`agent_id`, which it reads from anything that it does not know better. A user's text never has
`to_agent` unless the user wrote it: that client takes a text with `to_agent` and without
`from_agent` for the echo of its own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.gateway import Author, Entry, Kind, Prompt, Turn
from busd_plugins.tkr.adapters import LEGACY_NAMES, Message
from busd_plugins.tkr.prompts import metadata_of, plain_text
from busd_plugins.tkr.streams import Stream
from busd_plugins.tkr.values import BadMessage, utc

ERROR_SUFFIX = "_error"  # of the id of a failure, beside the answer whose id it has
_OWN_TYPES = ("agent_message", "system", "error")  # of entries, beside "text"


def frame(kind: str, *, message_id: str, timestamp: str, session: str, **members: Any) -> Message:
    """Return a message in both spellings; members that are None are left out."""
    standard = {"id": message_id, "type": kind, "timestamp": timestamp, "session_id": session}
    known = {name: value for name, value in members.items() if value is not None}
    return both_spellings(standard | known)


def both_spellings(standard: Message) -> Message:
    """Return a message of the standard spelling with the members of the legacy one."""
    both = dict(standard)
    for name, legacy_name in LEGACY_NAMES.items():
        if name in standard:
            both[legacy_name] = standard[name]
    if isinstance(content := standard.get("content"), str):
        both["text"] = content
    return both


def streamed(stream: Stream, turn: Turn, text: str, *, is_last: bool = False) -> Message:
    """Return a frame of an answer in the making."""
    return frame(
        "text",
        message_id=stream.id,
        timestamp=stream.timestamp,
        session=stream.session,
        from_agent=turn.agent.id,
        content=text,
        in_reply_to=turn.id,
        streaming=not is_last,
        turn_complete=is_last,
        thread_id=turn.thread_id or None,
    )


def prompted(session: str, turn_id: str, agent: str, prompt: Prompt, now: str) -> Message:
    """Return an agent's question."""
    return frame(
        "system",
        message_id=prompt.id,
        timestamp=prompt.timestamp or now,
        session=session,
        from_agent=agent or None,
        content=prompt.text,
        in_reply_to=turn_id or None,
        turn_complete=True,
        severity="info",
        metadata=metadata_of(prompt),
        message=plain_text(prompt),
        agent_id=agent or None,
    )


def timed_out(session: str, prompt: Prompt, now: str) -> Message:
    """Return the notice that nobody has answered a question in time."""
    return frame(
        "system",
        message_id=f"{prompt.id}_closed",
        timestamp=now,
        session=session,
        content="The question was not answered in time.",
        in_reply_to=prompt.id,
        turn_complete=True,
        severity="warning",
        metadata={"prompt_id": prompt.id, "closed": "timed_out"},
    )


def to_agent(answer: Message, agent: str) -> Message:
    """Return an agent's answer to another agent."""
    standard = {name: value for name, value in answer.items() if name != "streaming"}
    return both_spellings(standard | {"type": "agent_message", "to_agent": agent})


def failed(
    session: str,
    entry: Entry,
    *,
    code: str,
    text: str,
    details: Any,
    severity: str,
    recoverable: bool | None,
    now: str,
) -> Message:
    """Return the failure of a turn."""
    return frame(
        "error",
        message_id=entry.id + ERROR_SUFFIX,
        timestamp=in_utc(entry.timestamp, now),
        session=session,
        from_agent=entry.author.id if entry.author.type == "agent" else None,
        content=text or code or "The agent has failed.",
        in_reply_to=entry.turn or entry.reply_to or None,
        turn_complete=True,
        error_code=code or None,
        error_details=details,
        severity=severity or None,
        recoverable=recoverable,
        thread_id=entry.thread_id or None,
    )


def entry_frame(session: str, entry: Entry, *, is_own: bool, now: str) -> Message:
    """Return an entry that was kept: words, an answer, a failure or anything else."""
    metadata = value_of(entry.metadata)
    if entry.kind == Kind.FAILURE:
        about = metadata if isinstance(metadata, dict) else {}
        return failed(
            session,
            entry,
            code=str(about.get("code") or ""),
            text=entry.text,
            details=about.get("details"),
            severity=str(about.get("severity") or "error"),
            recoverable=about.get("recoverable") is True,
            now=now,
        )
    kind = entry.type if entry.dialect == "tkr" and entry.type in _OWN_TYPES else "text"
    if entry.author.type == "system":
        kind = "system"
    standard = _original(entry) | {
        "id": entry.id,
        "type": kind,
        "timestamp": in_utc(entry.timestamp, now),
        "session_id": session,
        "turn_complete": True,
    }
    standard.setdefault("content", entry.text)
    if reply_to := entry.turn or entry.reply_to:
        standard["in_reply_to"] = reply_to
    if entry.thread_id:
        standard["thread_id"] = entry.thread_id
    metadata = _metadata(entry, metadata)
    if entry.author.type == "agent":
        standard |= {"from_agent": entry.author.id}
        if kind == "text":
            standard["streaming"] = False
    elif entry.author.type == "user":
        standard["from_user"] = True
    _address(standard, entry, metadata, is_own=is_own)
    if metadata:
        standard["metadata"] = metadata
    return both_spellings(standard)


def in_utc(timestamp: str, now: str) -> str:
    """Return a time that ends in Z: the one given, else now."""
    try:
        return utc(timestamp) if timestamp else now
    except BadMessage:
        return now


def value_of(raw: Raw | UnsetType | None) -> Any:
    """Return a value that was kept as JSON, None if there is none."""
    return None if raw is None or raw is UNSET else msgspec.json.decode(raw)


def said_of(author: Author) -> Message:
    """Return an author as metadata has it."""
    return {"id": author.id, "type": author.type, "name": author.name or author.id}


def _original(entry: Entry) -> Message:
    """Return the frame by which a client of this format has sent an entry, else nothing."""
    original = value_of(entry.original) if entry.dialect == "tkr" else None
    if not isinstance(original, dict):
        return {}
    return {name: value for name, value in original.items() if value is not None}


def _metadata(entry: Entry, metadata: Any) -> Message:
    """Return the metadata of an entry, and what else a message has no member for."""
    said = dict(metadata) if isinstance(metadata, dict) else {}
    if entry.attachments:
        said["attachments"] = msgspec.to_builtins(entry.attachments)
    if entry.mentions:
        said["mentions"] = [said_of(each) for each in entry.mentions]
    if entry.prompt_id:
        said["prompt_id"] = entry.prompt_id
    return said


def _address(standard: Message, entry: Entry, metadata: Message, *, is_own: bool) -> None:
    """Set whom an entry is for, such that the client of the original shows it or takes its echo."""
    kind, is_agents = standard["type"], entry.author.type == "agent"
    if kind == "agent_message":
        standard |= {"to_agent": entry.to[0]} if entry.to else {}
        return
    if not is_agents:
        standard.pop("to_agent", None)
    if is_own and entry.to:
        standard["to_agent"] = entry.to[0]
    elif not is_own and not is_agents:
        metadata["author"] = said_of(entry.author)
        if entry.to:
            metadata["to_agents"] = list(entry.to)
    if not is_own and kind != "error" and (kind != "text" or not is_agents):
        standard |= {"message": entry.text, "agent_id": entry.author.name or entry.author.id}
