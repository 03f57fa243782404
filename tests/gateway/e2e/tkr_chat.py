"""A client of TKR, on python-socketio's own: by polling only, or by WebSocket."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar
from urllib.parse import urlencode

import anyio
import socketio

from tests.gateway.e2e.chat import Chat, Heard

_PAUSE_SECONDS = 0.05
_NAMESPACE = "/agents"
_EVENTS = ("message", "error", "task:update", "joined")


class TkrChat(Chat):
    """A client in the session of that name; the library itself connects again."""

    dialect = "tkr"
    transports: ClassVar[list[str]] = ["websocket"]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ids = 0
        self._io = socketio.AsyncClient(
            reconnection_delay=_PAUSE_SECONDS,
            reconnection_delay_max=_PAUSE_SECONDS,
            randomization_factor=0.0,
        )
        for event in _EVENTS:
            self._io.on(event, self._handler(event), namespace=_NAMESPACE)
        self._io.on("connect", self._on_connect, namespace=_NAMESPACE)

    async def run(self) -> None:
        query = urlencode({"session_id": self.name, "client_type": "client"})
        try:
            await self._io.connect(
                f"http://{self.place.host}/?{query}",
                headers=self.headers,
                transports=self.transports,
                namespaces=[_NAMESPACE],
                retry=True,
            )
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await self._io.shutdown()

    def _handler(self, event: str) -> Any:
        async def handle(data: Any) -> None:
            self.take({"event": event, **data})

        return handle

    async def _on_connect(self) -> None:
        # The answer comes behind all that was shown of the session when it was entered.
        await self._io.emit("join", {"type": "session", "id": self.name}, namespace=_NAMESPACE)

    async def say(self, text: str, *, reply_to: str = "", words_id: str = "") -> str:
        more = {"in_reply_to": reply_to} if reply_to else {}
        return await self._send("text", content=text, words_id=words_id, **more)

    async def answer(self, prompt: Heard, *values: str) -> None:
        await self._send("text", content=", ".join(values), metadata={"prompt_id": prompt.id})

    async def stop(self, step: Heard) -> None:
        """Cancel the answer that a step belongs to."""
        await self._send("task_update", task_id=step.id, action="cancel")

    async def _send(self, kind: str, *, words_id: str = "", **members: Any) -> str:
        """Send a message until it is acked: an ack is lost with its connection."""
        self._ids += 1
        words_id = words_id or f"{type(self).__name__}-{self.name}-{self._ids}"
        about = {"id": words_id, "type": kind, "session_id": self.name, "from_user": True}
        acks: list[Any] = []

        async def on_ack(data: Any) -> None:
            acks.append(data)
            self._wake()

        while not acks:
            connections = self.connections
            try:
                await self._io.emit("message", {**about, **members}, _NAMESPACE, callback=on_ack)
            except socketio.exceptions.BadNamespaceError:
                pass  # not connected just now
            await self.when(lambda: bool(acks) or self.connections > connections)  # noqa: B023
        return words_id

    def take(self, frame: Any) -> None:
        super().take(frame)
        if frame["event"] == "joined":
            self.entered()

    def hear(self, frame: Any) -> Iterable[Heard]:
        about = {"about": frame.get("in_reply_to", ""), "id": frame.get("id", ""), "frame": frame}
        metadata = frame.get("metadata", {})
        match frame:
            case {"event": "error", "message": text}:
                yield Heard(kind="error", text=text, frame=frame)
            case {"event": "task:update", "title": text, "task_id": task_id}:
                yield Heard(kind="step", text=text, **{**about, "id": task_id})
            case {"event": "message", "type": "error", "content": text}:
                yield from self._failed(Heard(kind="failure", text=text, **about))
            case {"event": "message", "type": "system", "content": text}:
                is_open = "closed" not in metadata
                is_notice = metadata.get("input_type", "notification") == "notification"
                kind = "notice" if is_notice else "prompt"
                yield Heard(kind=kind if is_open else "closed", text=text, **about)  # type: ignore[arg-type]
            case {"event": "message", "from_agent": agent, "content": text}:
                kind = "part" if frame["streaming"] else "answer"
                yield Heard(kind=kind, text=text, author=agent, **about)  # type: ignore[arg-type]
            case {"event": "message", "content": text}:
                author = metadata.get("author", {}).get("id", self.author)
                yield Heard(kind="words", text=text, author=author, **about)

    def _failed(self, failure: Heard) -> Iterable[Heard]:
        """Return a failure; the end of its stream, right before it, was no answer."""
        closed = self.heard[-1] if self.heard else None
        if closed and (closed.kind, closed.about) == ("answer", failure.about):
            self.heard[-1] = Heard(kind="part", text=closed.text, about=closed.about)
        yield failure


class PollingTkrChat(TkrChat):
    """The same, where WebSockets are not let through."""

    transports: ClassVar[list[str]] = ["polling"]
