"""A bus that does only what a test says: a real socket, and a script for each connection."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

Json = Any  # whatever json.loads gives
_MAX_LINE_BYTES = 1024 * 1024


class ScriptedLine:
    """The bus's end of one connection."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._received = BufferedByteReceiveStream(stream)

    async def read(self) -> Json:
        """Return the next thing that the client says."""
        return json.loads(await self._received.receive_until(b"\n", _MAX_LINE_BYTES))

    async def say(self, *values: Json) -> None:
        """Say all of this in one breath."""
        await self.stream.send(b"".join(json.dumps(value).encode() + b"\n" for value in values))

    async def answer(self, request: Json, result: Json) -> None:
        await self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def refuse(self, request: Json, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        await self.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async def welcome(self) -> Json:
        """Let the client in; give its `initialize`."""
        hello = await self.read()
        assert hello["method"] == "initialize", hello
        await self.answer(hello, {"serverId": "bus-scripted"})
        return hello

    async def listen_forever(self) -> None:
        """Read what comes and say nothing."""
        while True:
            await self.read()


Script = Callable[[ScriptedLine], Awaitable[None]]


@asynccontextmanager
async def open_scripted_bus(path: Path, script: Script) -> AsyncIterator[str]:
    """Run `script` for each connection to a Unix socket; its end closes the connection."""

    async def serve(stream: ByteStream) -> None:
        async with stream:
            try:
                await script(ScriptedLine(stream))
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                pass  # the client has left

    listener = await anyio.create_unix_listener(path)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve, tasks)
        yield f"unix:{path}"
        tasks.cancel_scope.cancel()


def process_message(number: int, to: str, payload: Json) -> Json:
    """Return the request by which a bus hands over a message."""
    params = {"from": "bus:script", "to": to, "messageId": f"msg_{number}", "payload": payload}
    return {"jsonrpc": "2.0", "id": number, "method": "processMessage", "params": params}
