"""A program that takes callbacks; a test says what goes wrong with each."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import h11
import msgspec
from anyio.abc import ByteStream
from anyio.streams.tls import TLSListener

from tests.daemons import PATIENCE_SECONDS

# A status; `hang` reads and says nothing, `cut` answers half a response, `drop` closes at once
# without reading, `noise` answers something else than HTTP.
Fault = int | Literal["hang", "cut", "drop", "noise"]


class Got(msgspec.Struct):
    """A callback."""

    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Listener:
    """Takes callbacks at a port of this host."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.faults: list[Fault] = []  # for the next callbacks; then they are accepted
        self.headers = ""  # lines of the responses
        self.got: list[Got] = []  # also those that were refused
        self.accepted: list[Got] = []
        self.release = anyio.Event()  # lets those go that hang

    def url(self, path: str = "/answers") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def until(
        self, condition: Callable[[], object], seconds: float = PATIENCE_SECONDS
    ) -> None:
        with anyio.fail_after(seconds):
            while not condition():
                await anyio.sleep(0.01)

    def texts(self) -> list[str]:
        return [each.json["reply"]["text"] for each in self.accepted]

    async def take(self, stream: ByteStream) -> None:
        async with stream:
            fault = self.faults.pop(0) if self.faults else 200
            if fault == "drop":
                return
            got = await _read(stream)
            if got is None:
                return
            self.got.append(got)
            if fault == "hang":
                await self.release.wait()
            elif fault == "cut":
                await stream.send(b"HTTP/1.1 20")
            elif fault == "noise":
                await stream.send(b"220 mail.example ready\r\n")
            else:
                if fault == 200:
                    self.accepted.append(got)
                head = f"HTTP/1.1 {fault} X\r\n{self.headers}Content-Length: 0\r\n\r\n"
                await stream.send(head.encode())


async def _read(stream: ByteStream) -> Got | None:
    http = h11.Connection(h11.SERVER)
    headers: dict[str, str] = {}
    body = b""
    while True:
        event = http.next_event()
        if isinstance(event, h11.Request):
            headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return Got(headers, body)
        elif event is h11.NEED_DATA:
            try:
                http.receive_data(await stream.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
        else:
            return None


@asynccontextmanager
async def open_listener(context: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as server:
        listener = Listener(server.extra(anyio.abc.SocketAttribute.local_port))
        encrypted = TLSListener(server, context) if context else server
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(encrypted.serve, listener.take)
            yield listener
            tasks.cancel_scope.cancel()


def nobody_listens() -> int:
    """Return a port at which connections are refused."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
