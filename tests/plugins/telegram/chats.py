"""Chats and messages of the Bot API server, and the ways in which a request fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

Json = dict[str, Any]  # as the Bot API has it


class Answer(msgspec.Struct):
    """What the server answers."""

    status: int
    body: Json

    @classmethod
    def of(cls, result: Any) -> Answer:
        return cls(200, {"ok": True, "result": result})

    @classmethod
    def failed(cls, code: int, description: str, **parameters: int) -> Answer:
        body: Json = {"ok": False, "error_code": code, "description": description}
        return cls(code, body | ({"parameters": parameters} if parameters else {}))


class Trouble(msgspec.Struct):
    """How a request fails: with an answer, or on the way.

    `way` is "half" (of a response), "drop" (the connection), "hang", "html" (of a proxy), or "deep"
    (JSON). The request has its effect unless there is an `answer`.
    """

    answer: Answer | None = None
    way: str = ""
    only: Callable[[Json], bool] | None = None  # requests with these parameters

    def concerns(self, params: Json) -> bool:
        return self.only is None or self.only(params)

    async def respond(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        body = json.dumps(answer.body).encode()
        if self.way == "hang":
            await asyncio.sleep(3_600)
        if self.way == "html":
            return web.Response(status=502, text="<html>Bad Gateway</html>")
        if self.way == "deep":
            return web.Response(body=b'{"ok":true,"result":' + b"[" * 100_000)
        if self.way in ("drop", "half"):
            assert request.transport is not None
            if self.way == "half":
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                request.transport.write(head + body[: len(body) // 2])
            request.transport.close()
        return web.Response(status=answer.status, body=body, content_type="application/json")


def failing(code: int, description: str, **parameters: int) -> Trouble:
    return Trouble(Answer.failed(code, description, **parameters))


class Chat(msgspec.Struct):
    """A chat, and why it takes nothing."""

    id: int
    kind: str = "private"
    refuses: Answer | None = None
    topics: list[int] = []

    def as_json(self) -> Json:
        if self.kind == "private":
            return {"id": self.id, "type": "private", "first_name": f"User{self.id}"}
        return {"id": self.id, "type": self.kind, "title": f"Group {self.id}"}

    def refusal(self, params: Json) -> Answer | None:
        if self.refuses is not None:
            return self.refuses
        if int(params.get("message_thread_id", 0)) not in (0, *self.topics):
            return Answer.failed(400, "Bad Request: message thread not found")
        return None


class Message(msgspec.Struct):
    """A message that the bot has posted."""

    chat: int
    id: int
    text: str
    entities: list[Json] = []
    reply_to: int = 0
    thread: int = 0
    markup: Json = {}
    kind: str = "text"
    content: bytes = b""
    edits: int = 0

    def as_json(self, chats: dict[int, Chat]) -> Json:
        return {
            "message_id": self.id,
            "date": 1_700_000_000,
            "chat": chats[self.chat].as_json(),
            "text": self.text,
        }

    def edit(self, params: Json) -> Answer | None:
        """Change the message; return why that is not possible."""
        markup = json.loads(params.get("reply_markup", "{}"))
        entities = json.loads(params.get("entities", "[]"))
        if (params["text"], markup, entities) == (self.text, self.markup, self.entities):
            words = "specified new message content and reply markup are exactly the same"
            return Answer.failed(400, f"Bad Request: message is not modified: {words}")
        self.text, self.markup, self.entities = params["text"], markup, entities
        self.edits += 1
        return None

    def buttons(self) -> dict[str, str]:
        """Return the data of each button by its label."""
        rows = self.markup.get("inline_keyboard", [])
        return {each["text"]: each["callback_data"] for row in rows for each in row}

    def formats(self) -> list[tuple[str, str]]:
        """Return each formatted piece of the text."""
        raw = self.text.encode("utf-16-le")
        return [(each["type"], _cut(raw, each["offset"], each["length"])) for each in self.entities]


def _cut(raw: bytes, offset: int, length: int) -> str:
    return raw[2 * offset : 2 * (offset + length)].decode("utf-16-le")


def check_text(params: Json) -> Answer | None:
    """Return why a text, or its format, is refused."""
    text = params.get("text", "")
    raw = text.encode("utf-16-le")
    if not text.strip():
        return Answer.failed(400, "Bad Request: message text is empty")
    if len(raw) // 2 > 4096:
        return Answer.failed(400, "Bad Request: message is too long")
    for each in json.loads(params.get("entities", "[]")):
        offset, length = each["offset"], each["length"]
        try:
            piece = _cut(raw, offset, length)
        except UnicodeDecodeError:
            piece = ""
        if not piece or offset < 0 or 2 * (offset + length) > len(raw):
            return Answer.failed(400, "Bad Request: can't parse entities: wrong bounds")
    for data in _callback_data(params):
        if not 1 <= len(data.encode()) <= 64:
            return Answer.failed(400, "Bad Request: BUTTON_DATA_INVALID")
    return None


def _callback_data(params: Json) -> list[str]:
    rows = json.loads(params.get("reply_markup", "{}")).get("inline_keyboard", [])
    return [each["callback_data"] for row in rows for each in row]
