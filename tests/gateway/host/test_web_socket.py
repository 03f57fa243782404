"""WebSockets: frames in and out, and what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.gateway.host.hosts import RunningHost, bearer

pytestmark = pytest.mark.anyio


async def read(client: ClientConnection) -> Any:
    with anyio.fail_after(20):
        return json.loads(await client.recv())


async def test_frames_go_in_and_come_out(host: RunningHost, ann: str) -> None:
    async with connect(f"{host.ws}/ws/echo?a=1", additional_headers=bearer(ann)) as client:
        assert await read(client) == {"user": "ann", "query": {"a": "1"}, "room": ""}
        for text in ("hello", "你好 🙂", "x" * 200_000):
            await client.send(text)
            assert await client.recv() == text
