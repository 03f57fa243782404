"""The frames that an AgentIQ client gets: exactly what the toolkit's models and web UI accept.

Their `content` takes no additional members; beside it there may be some.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from busd.gateway import Author, Hello, Step

Frame = dict[str, Any]
_NO_ID = "default"  # what the toolkit writes where there is none
_ROOT = "root"


class Place(msgspec.Struct, frozen=True):
    """Where a frame belongs."""

    conversation: str
    parent: str = ""  # the id of the user's message
    thread: str = ""


class Frames:
    """Makes the frames of one connection."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello

    def text(self, place: Place, text: str, author: Author | None = None) -> Frame:
        """Return a piece of an answer, or with `author` the words of somebody else."""
        frame = self._frame("system_response_message", place, {"text": text})
        if author is not None:
            shown = {"id": author.id, "type": author.type, "name": author.name or author.id}
            frame["author"] = shown
        return frame

    def complete(self, place: Place) -> Frame:
        """Return the last frame of an answer."""
        frame = self._frame("system_response_message", place, {"text": None})
        frame["status"] = "complete"
        return frame

    def error(self, place: Place, code: str, message: str, details: str) -> Frame:
        """Return an error; its code is one of the toolkit's."""
        content = {"code": code, "message": message, "details": details}
        return self._frame("error_message", place, content)

    def failure(self, place: Place, code: str, message: str, details: str) -> list[Frame]:
        """Return an error that ends an answer of which nothing was shown.

        The toolkit's web UI hides an answer without text and steps, and its errors with it.
        """
        note = self.note(place, "", "The turn has failed", details)
        return [note, self.error(place, code, message, details)]

    def step(self, place: Place, step: Step) -> Frame:
        """Return a step; all its frames have one id and one name, by which a client replaces it."""
        content = {"name": step.name or step.tool or step.id, "payload": step_text(step)}
        frame = self.note(place, step.id, content["name"], content["payload"], step.parent)
        frame["status"] = "in_progress" if step.status == "in_progress" else "complete"
        if step.tool:
            frame["tool"] = step.tool
        if step.arguments is not msgspec.UNSET:
            frame["arguments"] = step.arguments
        if step.status == "failed":
            frame["error"] = {"code": step.code or "failed"}
        return frame

    def note(self, place: Place, note_id: str, name: str, payload: str, parent: str = "") -> Frame:
        """Return something that is shown beside the answer, as a step."""
        content = {"name": name, "payload": payload}
        frame = self._frame("system_intermediate_message", place, content)
        frame["id"] = note_id or frame["id"]
        frame["parent_id"] = parent or _ROOT
        frame["intermediate_parent_id"] = parent or _NO_ID
        frame["user_message_id"] = place.parent or _NO_ID
        frame["status"] = "complete"
        return frame

    def interaction(self, place: Place, content: Frame) -> Frame:
        """Return a prompt."""
        return self._frame("system_interaction_message", place, content)

    def again(self, frame: Frame) -> Frame:
        """Return a prompt once more, with the time that is left now."""
        now, content = self._hello.now(), frame["content"]
        if "timeout" in content:
            passed = datetime.fromisoformat(now) - datetime.fromisoformat(frame["timestamp"])
            seconds = max(1, content["timeout"] - int(passed.total_seconds()))
            content = {**content, "timeout": seconds}
        return {**frame, "id": self._hello.new_id(), "content": content, "timestamp": now}

    def authenticated(self, user: str) -> Frame:
        """Return the answer to an `auth_message`; it takes no additional members at all."""
        return self._auth_response("success", user, None)

    def not_authenticated(self, details: str) -> Frame:
        error = {
            "code": "user_auth_error",
            "message": "Authentication failed",
            "details": details,
        }
        return self._auth_response("error", None, error)

    def _auth_response(self, status: str, user: str | None, payload: Frame | None) -> Frame:
        return {
            "type": "auth_response_message",
            "status": status,
            "user_id": user,
            "payload": payload,
            "timestamp": self._hello.now(),
        }

    def _frame(self, kind: str, place: Place, content: Frame) -> Frame:
        return {
            "type": kind,
            "id": self._hello.new_id(),
            "thread_id": place.thread or _NO_ID,
            "parent_id": place.parent or _NO_ID,
            "conversation_id": place.conversation,
            "content": content,
            "status": "in_progress",
            "timestamp": self._hello.now(),
        }


def step_text(step: Step) -> str:
    """Return what a step says as one text: Markdown if there is more than its payload."""
    payload = plain_text(step.payload)
    if step.status == "failed":
        payload = f"**Error:** {payload or 'the step has failed'}"
    if step.arguments is msgspec.UNSET:
        return payload
    arguments = msgspec.json.format(msgspec.json.encode(step.arguments), indent=2).decode()
    text = f"**Input:**\n```json\n{arguments}\n```"
    if not payload:
        return text
    return (
        f"{text}\n\n{payload}" if step.status == "failed" else f"{text}\n\n**Output:**\n{payload}"
    )


def plain_text(payload: msgspec.Raw | msgspec.UnsetType) -> str:
    """Return a text as it is, and any other value as JSON."""
    if payload is msgspec.UNSET:
        return ""
    value = msgspec.json.decode(payload)
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
