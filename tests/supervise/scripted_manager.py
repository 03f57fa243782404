"""A server on a Unix socket that speaks D-Bus as a manager's private socket does, or badly."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import SocketStream
from jeepney import DBusAddress, HeaderFields, Message, Parser, new_method_return, new_signal

MANAGER = DBusAddress(
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1",
    "org.freedesktop.systemd1.Manager",
)


class Client:
    """What has connected, after it was authenticated."""

    def __init__(self, stream: SocketStream, left: bytes) -> None:
        self._stream = stream
        self._parser = Parser()
        self._parser.add_data(left)

    async def next_call(self, member: str) -> Message:
        """Return the next call, which is of that method."""
        while (message := self._parser.get_next_message()) is None:
            self._parser.add_data(await self._stream.receive())
        assert message.header.fields[HeaderFields.member] == member
        return message

    async def send(self, *messages: Message) -> None:
        """Send messages in one write."""
        await self.send_bytes(b"".join(each.serialise(1) for each in messages))

    async def send_bytes(self, data: bytes) -> None:
        await self._stream.send(data)

    async def accept_subscription(self) -> None:
        await self.send(new_method_return(await self.next_call("Subscribe")))

    async def wait_for_end(self) -> None:
        """Read and answer nothing until the client has closed the connection."""
        while True:
            try:
                await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return


Behaviour = Callable[[Client], Awaitable[None]]


def job_removed(job: str, result: str) -> Message:
    body = (1, job, "w.service", result)
    return new_signal(MANAGER, "JobRemoved", "uoss", body)


def header_of(size: int) -> bytes:
    """Return how a signal begins whose body has that size."""
    whole: bytes = new_signal(MANAGER, "Reloading", "ay", (bytes(8),)).serialise(1)
    return whole[:4] + size.to_bytes(4, "little") + whole[8:16]


async def authenticate(stream: SocketStream) -> bytes:
    """Accept what a client sends first; return what came after that."""
    said = b""
    while b"BEGIN\r\n" not in said:
        said += await stream.receive()
    assert said.startswith(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode())
    await stream.send(b"OK 0123456789abcdef0123456789abcdef\r\n")
    return said.partition(b"BEGIN\r\n")[2]


@asynccontextmanager
async def serve(socket: Path, *behaviours: Behaviour) -> AsyncIterator[None]:
    """Serve one connection after the other, each as told; then accept no more."""
    socket.parent.mkdir(parents=True, exist_ok=True)

    async def run() -> None:
        for behaviour in behaviours:
            async with await listener.accept() as stream:
                await behaviour(Client(stream, await authenticate(stream)))

    async with (
        await anyio.create_unix_listener(socket) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(run)
        yield
        tasks.cancel_scope.cancel()
