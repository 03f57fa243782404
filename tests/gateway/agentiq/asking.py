"""A client of AgentIQ, as the tests speak for it."""

from __future__ import annotations

from typing import Any

from busd_plugins.agentiq.dialect import AgentIQ
from tests.gateway.stage.line import Frame, Line


def connect(conversation: str = "c1", **about: Any) -> Line:
    """Return an open line of the user ann in a conversation."""
    query = {"conversation_id": conversation} if conversation else {}
    line = Line(AgentIQ, query, **about)
    line.open()
    return line


def ask(line: Line, text: str = "hello", message_id: str = "m1", **about: Any) -> list[Frame]:
    return line.send(user_message(text, message_id, **about))


def answer(line: Line, *texts: str, parent: str = "m1", **about: Any) -> list[Frame]:
    parts = [{"type": "text", "text": text} for text in texts]
    content = {"messages": [{"role": "user", "content": parts}]}
    kind = "user_interaction_message"
    return line.send({"type": kind, "id": "a1", "parent_id": parent, "content": content, **about})


def user_message(text: str = "hello", message_id: str = "m1", **about: Any) -> Frame:
    parts = [{"type": "text", "text": text}]
    content = {"messages": [{"role": "user", "content": parts}]}
    return {"type": "user_message", "id": message_id, "content": content, **about}


def errors(frames: list[Frame]) -> list[tuple[str, str]]:
    """Return the code and the details of all errors."""
    found = [frame["content"] for frame in frames if frame["type"] == "error_message"]
    return [(each["code"], each["details"]) for each in found]


def texts(frames: list[Frame]) -> list[str | None]:
    """Return the text of all responses, None for the end of an answer."""
    kind = "system_response_message"
    return [frame["content"]["text"] for frame in frames if frame["type"] == kind]


def notes(frames: list[Frame]) -> list[tuple[str, str]]:
    """Return the name and the payload of all intermediate messages."""
    kind = "system_intermediate_message"
    found = [frame["content"] for frame in frames if frame["type"] == kind]
    return [(each["name"], each["payload"]) for each in found]
