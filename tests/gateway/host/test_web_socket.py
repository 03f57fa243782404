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


async def test_a_dialect_may_let_the_first_frame_come_before_it_is_opened(
    host: RunningHost, ann: str
) -> None:
    async with connect(f"{host.ws}/ws/patient", additional_headers=bearer(ann)) as client:
        await client.send("hello")
        assert await client.recv() == "hello"
        assert (await read(client))["user"] == "ann"
        await client.send("again")
        assert await client.recv() == "again"


async def test_a_dialect_is_opened_if_no_frame_comes_first(host: RunningHost, ann: str) -> None:
    async with connect(f"{host.ws}/ws/brief", additional_headers=bearer(ann)) as client:
        assert (await read(client))["user"] == "ann"
        await client.send("hello")
        assert await client.recv() == "hello"


async def test_a_client_may_leave_before_its_dialect_is_opened(host: RunningHost, ann: str) -> None:
    async with connect(f"{host.ws}/ws/patient", additional_headers=bearer(ann)):
        await host.until(lambda: host.clients.count() == {"patient": 1})
    await host.until(lambda: len(host.clients) == 0)
