"""Clients that use a plain WebSocket: of group chat, stage chat and AgentIQ."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.gateway.e2e.chat import PATIENCE_SECONDS, Chat, Heard

_PAUSE_SECONDS = 0.05
_NOW = "2026-03-01T08:00:00Z"
_SPOKEN = re.compile(r"(?P<name>[^:]+): (?P<text>.*)", re.DOTALL)


class WebChat(Chat):
    """A client that connects again whenever its WebSocket is lost."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.socket: ClientConnection | None = None
        self._ids = 0

    @property
    @abstractmethod
    def path(self) -> str:
        """The path and query."""

    async def run(self) -> None:
        while True:
            try:
                async with self._connected() as self.socket:
                    await self.greet()
                    async for data in self.socket:
                        self.take(json.loads(data))
            except (OSError, ConnectionClosed, InvalidHandshake):
                pass  # it is not there, or was killed: it will be back
            await anyio.sleep(_PAUSE_SECONDS)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[ClientConnection]:
        url = f"ws://{self.place.host}{self.path}"
        socket = await connect(
            url, additional_headers=self.headers, max_size=None, open_timeout=None
        )
        try:
            yield socket
        finally:
            with anyio.CancelScope(shield=True):
                await socket.close()

    async def greet(self) -> None:
        """Send what the format sends first."""

    async def send(self, frame: Any) -> None:
        """Send a frame as soon as there is a connection."""
        data = frame if isinstance(frame, str) else json.dumps(frame, ensure_ascii=False)
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                connections = self.connections
                try:
                    assert self.socket is not None
                    await self.socket.send(data)
                    return
                except ConnectionClosed:
                    await self.until_back(connections + 1)

    def new_id(self) -> str:
        self._ids += 1
        return f"{self.dialect}-{self.name}-{self._ids}"


class GroupChat(WebChat):
    """A client of group chat, in the room of that name."""

    dialect = "group"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._acks = 0  # of this connection

    @property
    def path(self) -> str:
        return f"/ws/messaging/{self.name}/"

    @property
    def sender(self) -> dict[str, str]:
        return {"id": self.author, "type": "user", "name": self.author}

    async def greet(self) -> None:
        self._acks = 0
        await self._send("connect", {"features": ["streaming"]})

    async def _send(self, kind: str, payload: Any, words_id: str = "") -> None:
        frame = {"message_type": kind, "sender": self.sender, "timestamp": _NOW, "payload": payload}
        if words_id:
            frame["message_id"] = words_id
        await self.send(frame)

    async def say(self, text: str, *, reply_to: str = "", words_id: str = "") -> str:
        words_id = words_id or self.new_id()
        payload = {"text": text} | ({"reply_to": reply_to} if reply_to else {})
        while not any(each.id == words_id for each in self.all("words", "error")):
            connections = self.connections
            await self._send("chat", payload, words_id)
            # Its own words come back; if the connection is lost before, they are sent again.
            await self.when(
                lambda: (
                    self.connections > connections  # noqa: B023 (it is called within this round)
                    or any(each.id == words_id for each in self.all("words", "error"))
                )
            )
        return words_id

    async def answer(self, prompt: Heard, *values: str) -> None:
        """Vote, if there are options; else say it."""
        vote = {"votes": list(values)} if len(values) > 1 else {"vote": values[0]}
        if prompt.frame["payload"]["options"]:
            await self._send("poll", {"poll_id": prompt.id, **vote}, self.new_id())
        else:
            await self._send("chat", {"text": values[0]}, self.new_id())

    async def stop(self, turn: str) -> None:
        await self._send("status", {"status": "cancelled", "reply_to": turn})

    def take(self, frame: Any) -> None:
        super().take(frame)
        if frame["message_type"] == "connect_ack":
            # On accept and after `connect`: the second one says that we are there as who we are.
            self._acks += 1
            if self._acks == 2:
                assert frame["payload"]["user_info"]["id"] == self.author
                self.entered()

    def hear(self, frame: Any) -> Iterable[Heard]:
        payload, kind = frame["payload"], frame["message_type"]
        about = payload.get("reply_to") or frame["metadata"].get("request_id", "")
        named = {"id": frame["message_id"], "author": frame["sender"]["id"], "about": about}
        text = payload.get("text", "")
        if kind == "agent_response":
            yield Heard(kind="part" if payload["is_thinking"] else "answer", text=text, **named)
        elif kind == "chat":
            yield Heard(kind="words", text=text, frame=frame, **named)
        elif kind == "error" and payload.get("code", "").startswith("MSG_"):
            yield Heard(kind="error", text=text, id=about, frame=frame)
        elif kind == "error":
            yield Heard(kind="failure", text=text, frame=frame, **named)
        elif kind == "status":
            is_end = payload["status"] == "cancelled"
            yield Heard(kind="stopped" if is_end else "step", text=text, frame=frame, **named)
        elif kind == "poll" and "vote" not in payload and "votes" not in payload:
            yield Heard(kind="prompt", text=text, frame=frame, **named)
        elif kind == "task_update":
            yield Heard(kind="closed", text=payload["status"], frame=frame, **named)
        elif kind == "system":
            yield Heard(kind="notice", text=text, frame=frame, **named)


class StageChat(WebChat):
    """A client of stage chat, which sends plain text."""

    dialect = "stage"

    @property
    def path(self) -> str:
        return f"/ws/ai?{urlencode({'session_id': self.name})}"

    async def say(self, text: str, *, reply_to: str = "", words_id: str = "") -> str:
        await self.send(text)
        return ""  # the format has none for a user's words

    async def answer(self, prompt: Heard, *values: str) -> None:
        await self.send(", ".join(values))

    def take(self, frame: Any) -> None:
        super().take(frame)
        if frame.get("type") == "welcome":
            self.entered()

    def hear(self, frame: Any) -> Iterable[Heard]:
        about = {"about": frame.get("parent_id", ""), "id": frame["message_id"], "frame": frame}
        match frame:
            case {"stage": "initial_response", "content": ""}:
                pass  # the announcement of tools, or of a failure
            case {"stage": "initial_response" | "final_response", "content": text}:
                yield Heard(kind="answer", text=text, **about)
            case {"stage": _}:
                yield Heard(kind="step", text=frame.get("response", ""), **about)
            case {"type": "message", "message": text, "author": {"id": author}, "role": role}:
                spoken = _SPOKEN.fullmatch(text)
                assert spoken is not None, frame
                kind = "answer" if role == "assistant" else "words"
                yield Heard(kind=kind, text=spoken["text"], author=author, **about)  # type: ignore[arg-type]
            case {"type": "exception", "message": text}:
                is_failure = "parent_id" in frame
                yield Heard(kind="failure" if is_failure else "error", text=text, **about)
            case {"type": "prompt", "message": text}:
                yield Heard(kind="prompt", text=text, **about)
            case {"type": "notification", "message": text}:
                yield Heard(kind="notice", text=text, **about)
            case {"type": "cancelled", "message": text}:
                yield Heard(kind="stopped", text=text, **about)


class AgentIqChat(WebChat):
    """A client of AgentIQ, as the toolkit's own web UI."""

    dialect = "agentiq"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._texts: dict[str, str] = {}  # of the answers that come in
        self._failed: set[str] = set()

    @property
    def path(self) -> str:
        return f"/websocket?{urlencode({'conversation_id': self.name})}"

    async def greet(self) -> None:
        # There is no greeting: what is complained of is read after the conversation was entered.
        self._texts.clear()
        await self._send("are_you_there", "greeting")

    async def _send(self, kind: str, frame_id: str, **members: Any) -> None:
        assert self.socket is not None
        about = {"conversation_id": self.name, "timestamp": _NOW}
        await self.send({"type": kind, "id": frame_id, **about, **members})

    async def say(self, text: str, *, reply_to: str = "", words_id: str = "") -> str:
        words_id = words_id or self.new_id()
        said = {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
        more = {"schema_type": "chat_stream", "thread_id": reply_to or "t1"}
        await self._send("user_message", words_id, content=said, **more)
        return words_id

    async def answer(self, prompt: Heard, *values: str) -> None:
        texts = [{"type": "text", "text": value} for value in values]
        names = {name: prompt.frame[name] for name in ("thread_id", "parent_id")}
        said = {"messages": [{"role": "user", "content": texts}]}
        await self._send("user_interaction_message", self.new_id(), content=said, **names)

    def take(self, frame: Any) -> None:
        if frame["type"] == "error_message" and frame["parent_id"] == "greeting":
            self.entered()
        else:
            super().take(frame)

    def hear(self, frame: Any) -> Iterable[Heard]:
        parent, content = frame["parent_id"], frame["content"]
        about = {"about": parent, "id": frame["id"], "frame": frame}
        match frame:
            case {"type": "system_response_message", "status": "complete"}:
                text = self._texts.pop(parent, "")
                if parent not in self._failed:
                    yield Heard(kind="answer", text=text, **about)
            case {"type": "system_response_message", "author": {"id": author}}:
                text = content["text"].removesuffix("\n\n").partition(": ")[2]
                about = {"id": parent, "frame": frame}
                yield Heard(kind="words", text=text, author=author, **about)
            case {"type": "system_response_message"}:
                self._texts[parent] = self._texts.get(parent, "") + content["text"]
                yield Heard(kind="part", text=content["text"], **about)
            case {"type": "error_message"}:
                self._failed.add(parent)
                yield Heard(kind="failure", text=content["message"], **about)
            case {"type": "system_intermediate_message"}:
                yield Heard(kind="step", text=content["payload"], author=content["name"], **about)
            case {"type": "system_interaction_message", "content": {"input_type": "notification"}}:
                yield Heard(kind="notice", text=content["text"], **about)
            case {"type": "system_interaction_message"}:
                yield Heard(kind="prompt", text=content["text"], **about)
