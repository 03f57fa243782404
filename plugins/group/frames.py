"""Frames to a client, and entries of a conversation as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.gateway import Author, Entry, Hello, Kind, Refused, Task
from busd_plugins.group.errors import AGENT_FAILED, OF_RULES
from busd_plugins.group.files import shown_attachment
from busd_plugins.group.links import with_links
from busd_plugins.group.messages import Json
from busd_plugins.group.payloads import described
from busd_plugins.group.people import SYSTEM
from busd_plugins.group.room import PREFIX, Room
from busd_plugins.group.tracked import IDS, choices_of, named_id, with_state

_decode = msgspec.json.decode
_MEMBERSHIP = {"join": ("member_joined", "加入了群组"), "leave": ("member_left", "离开了群组")}


class _Last:
    """The entry that was shown last: an event is shown to all clients of a room at once.

    Only this one is kept, whatever its room: a frame may take up many times its size as text.
    """

    def __init__(self) -> None:
        self.entry: Entry | None = None
        self.base = ""  # what begins the links in the frame
        self.frame: Json = {}


_last = _Last()


class Frames:
    """Makes the frames for one client."""

    def __init__(self, hello: Hello, room: Room) -> None:
        self._hello = hello
        self._room = room
        self.room = room.name

    def shown(self, agent: Author) -> Author:
        """Return an agent as it is known in the room."""
        return self._room.people.shown(agent)

    def make(
        self,
        kind: str,
        payload: Json,
        *,
        sender: Author = SYSTEM,
        message_id: str = "",
        timestamp: str = "",
        metadata: Json | None = None,
    ) -> Json:
        """Return a frame; a missing id and time are made."""
        return {
            "message_id": message_id or self._hello.new_id(),
            "message_type": kind,
            "sender": described(sender),
            "timestamp": timestamp or self._hello.now(),
            "payload": with_links(payload, self._hello.sign),
            "metadata": with_links(metadata or {}, self._hello.sign),
        }

    def in_room(self, **members: Any) -> Json:
        """Return a payload for this room."""
        return {"group_id": self.room, **members}

    def error(
        self,
        code: str,
        text: str,
        details: object = "",
        *,
        severity: str = "error",
        request_id: str = "",
        message_id: str = "",
        **more: str,
    ) -> Json:
        """Return an error, its code in both places."""
        frame = self.make(
            "error",
            {"code": code, "text": text, "severity": severity, "details": details, **more},
            message_id=message_id,
            metadata={"request_id": request_id} if request_id else {},
        )
        return {**frame, "error": {"code": code, "message": text}}

    def failure(self, agent: Author, message: str) -> str:
        """Return the text of a failure of an agent."""
        name = f" {self.shown(agent).name or agent.id} " if agent.id else ""
        return f"代理{name}响应失败：{message}"

    def refused(self, event: Refused, request_id: str) -> Json:
        """Return why a request was refused, in the language of the format and in ours."""
        code, text = OF_RULES[event.rule]
        details = f"{event.detail}: {event.reason}" if event.detail else event.reason
        frame = self.error(code, text, details, request_id=request_id)
        if event.retry_seconds is not None:
            frame["payload"]["retry_seconds"] = event.retry_seconds
        return frame

    def of_entry(self, entry: Entry, tasks: Mapping[str, Task], *, is_past: bool = False) -> Json:
        """Return an entry of the conversation: words of any dialect, answers, failures."""
        if is_past:
            return self._of_entry(entry, tasks, is_past=True)
        if _last.entry is not entry or _last.base != self._hello.base:
            _last.frame = self._of_entry(entry, tasks, is_past=False)
            _last.entry, _last.base = entry, self._hello.base
        return _last.frame

    def _of_entry(self, entry: Entry, tasks: Mapping[str, Task], *, is_past: bool) -> Json:
        original = _object(entry.original) if entry.dialect == PREFIX else {}
        if original:
            return self._original(entry, original, tasks, is_past)
        if entry.kind is Kind.FAILURE:
            text = self.failure(entry.author, entry.text)
            return self.error(
                AGENT_FAILED, text, entry.text, message_id=entry.id, request_id=entry.turn
            ) | {"timestamp": entry.timestamp or self._hello.now()}
        return self._foreign(entry)

    def _original(
        self, entry: Entry, original: Json, tasks: Mapping[str, Task], is_past: bool
    ) -> Json:
        """Return a frame as its client sent it, with what has become of it."""
        kind = entry.type or str(original.get("message_type"))
        payload: Json = original.get("payload", {})
        if kind in _MEMBERSHIP:
            event, done = _MEMBERSHIP[kind]
            subject = payload.get("subject") or described(entry.author)
            # What a user says is told behind that, so that nobody takes it for the system's words.
            said = f"：{payload['text']}" if payload.get("text") else ""
            text = f"{subject.get('name') or subject.get('id')}{done}{said}"
            payload = {**payload, "text": text, "event_type": event, "subject": subject}
            kind, original = "system", {**original, "sender": described(SYSTEM)}
        elif kind in IDS:
            payload = _with_task(entry, kind, payload, tasks, is_past)
        if kind == "error" and "error" not in original:
            error = {"code": payload.get("code", ""), "message": payload.get("text", "")}
            original = {**original, "error": error}
        frame = {
            "message_id": entry.id,
            "message_type": kind,
            "sender": original.get("sender", described(entry.author)),
            "timestamp": entry.timestamp or self._hello.now(),
            "payload": payload,
            "metadata": original.get("metadata", {}),
        }
        more = {name: original[name] for name in original if name not in frame}
        shown: Json = with_links(frame | more, self._hello.sign, is_clean=True)
        return shown

    def _foreign(self, entry: Entry) -> Json:
        """Return words that come from another dialect or from an agent."""
        author = entry.author
        payload = self.in_room(text=entry.text)
        reply_to = entry.reply_to or entry.turn or entry.prompt_id
        metadata = _object(entry.metadata)
        kind = "chat"
        if entry.kind is Kind.REPLY or author.type == "agent":
            kind, author = "agent_response", self.shown(author)
            payload |= {"reply_to": reply_to, "is_thinking": False}
            metadata = {**metadata, "response_type": "final"}
        elif author.type == "system":
            kind, author = "system", SYSTEM
            payload["event_type"] = entry.type or "notification"
        elif reply_to:
            payload["reply_to"] = reply_to
        if entry.thread_id:
            payload["thread_id"] = entry.thread_id
        if entry.mentions:
            payload["mentions"] = [described(author) for author in entry.mentions]
        if entry.attachments:
            payload["attachments"] = [shown_attachment(file) for file in entry.attachments]
        return self.make(
            kind,
            payload,
            sender=author,
            message_id=entry.id,
            timestamp=entry.timestamp,
            metadata=metadata,
        )


def _with_task(
    entry: Entry, kind: str, payload: Json, tasks: Mapping[str, Task], is_past: bool
) -> Json:
    """Return the payload of a message about a task, with the state of that task.

    The message that created it shows the state of now; others that of the moment when they were
    sent, which they have in themselves.
    """
    task = tasks.get(named_id(kind, payload) or entry.id)
    if task is None:
        is_new = kind != "task_update" and choices_of(payload) is None
        return with_state(payload, kind, None, is_own=True) if is_new else payload
    is_own = task.entry_id == entry.id
    if is_past and not is_own:
        return payload
    return with_state(payload, str(task.kind) if task.kind else kind, task, is_own=is_own)


def _object(value: Raw | UnsetType) -> Json:
    """Return a JSON object; anything else is empty."""
    if value is UNSET:
        return {}
    found = _decode(value)
    return found if isinstance(found, dict) else {}
