"""Messages as the tests send them."""

from __future__ import annotations

from typing import Any

from tests.gateway.group.hall import Json

ZHANG = {"id": "user123", "type": "user", "name": "张三"}
LI = {"id": "user124", "type": "user", "name": "李四"}


def message(kind: str = "chat", text: str | None = None, **payload: Any) -> Json:
    """Return a message of 张三; `sender` and `message_id` go where they belong."""
    frame: Json = {"message_type": kind, "sender": payload.pop("sender", ZHANG)}
    if message_id := payload.pop("message_id", ""):
        frame["message_id"] = message_id
    return {**frame, "payload": {**({} if text is None else {"text": text}), **payload}}


def of_type(frames: list[Json], kind: str) -> list[Json]:
    """Return the frames of one type."""
    return [frame for frame in frames if frame["message_type"] == kind]


def error_of(frames: list[Json]) -> tuple[str, str]:
    """Return code and details of the only frame, an error with its code in both places."""
    (frame,) = frames
    assert frame["message_type"] == "error"
    assert frame["sender"] == {"id": "system", "type": "system", "name": "系统"}
    assert frame["error"]["code"] == frame["payload"]["code"]
    assert frame["error"]["message"] == frame["payload"]["text"]
    assert frame["payload"]["severity"] == "error"
    return frame["payload"]["code"], frame["payload"]["details"]
