"""Group chat and stage chat behind the real host: what never reaches a conversation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from busd.gateway.loading import Route
from busd_plugins.group import plugin as group
from busd_plugins.stage import plugin as stage
from tests.gateway.host import hosts
from tests.gateway.host.hosts import RunningHost, bearer, open_host

pytestmark = pytest.mark.anyio
GROUP, STAGE = "/ws/messaging/group7/", "/ws/ai"
ROUTES = [
    Route(path, plugin.name, "", dialect)
    for plugin in (group, stage)
    for path, dialect in plugin.dialects.items()
]
ZHANG = {"id": "zhang", "type": "user", "name": "张三"}


@pytest.fixture
async def host(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningHost]:
    """A host with these two formats, where nobody is known without a token."""
    monkeypatch.setattr(hosts, "ROUTES", ROUTES)
    async with open_host() as opened:
        yield opened


@asynccontextmanager
async def open_client(host: RunningHost, path: str, token: str) -> AsyncIterator[ClientConnection]:
    headers = bearer(token) if token else {}
    async with connect(f"{host.ws}{path}", additional_headers=headers) as client:
        yield client


async def read(client: ClientConnection) -> Any:
    with anyio.fail_after(20):
        return json.loads(await client.recv())


def chat(text: str, **payload: Any) -> str:
    frame = {"message_type": "chat", "sender": ZHANG, "payload": {"text": text, **payload}}
    return json.dumps(frame)


@pytest.mark.parametrize("path", [GROUP, STAGE])
async def test_a_page_of_a_foreign_site_is_refused(host: RunningHost, ann: str, path: str) -> None:
    headers = {**bearer(ann), "Origin": "https://evil.example"}
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"{host.ws}{path}", additional_headers=headers):
            pass
    assert refused.value.response.status_code == 403


async def test_a_token_in_the_wrong_place_lets_nobody_into_a_room(
    host: RunningHost, ann: str
) -> None:
    async with open_client(host, f"{GROUP}?auth_token={ann}", "") as client:
        await client.send(chat("你好", auth_token=ann))
        assert (await read(client))["payload"]["code"] == "MSG_WSK_203"
        connected = {"message_type": "connect", "sender": ZHANG, "payload": {"auth_token": ann}}
        await client.send(json.dumps(connected))
        assert (await read(client))["message_type"] == "connect_ack"


async def test_a_token_in_the_wrong_place_lets_nobody_into_a_session(
    host: RunningHost, ann: str
) -> None:
    async with open_client(host, f"{STAGE}?session_id={ann}", "") as client:
        assert (await read(client))["status"] == "error"
        with pytest.raises(ConnectionClosed):
            await client.recv()


@pytest.mark.parametrize(
    ("path", "more", "answer"),
    [(GROUP, '{"message_type": "ping"}', "pong"), (STAGE, "exit", "goodbye")],
)
async def test_a_frame_over_the_limit_is_refused_and_the_next_is_not(
    host: RunningHost, ann: str, path: str, more: str, answer: str
) -> None:
    async with open_client(host, path, ann) as client:
        await read(client)
        await client.send(chat("x" * (1024 * 1024)))
        refused = await read(client)
        assert "error" in (refused.get("status"), refused.get("message_type"))
        await client.send(more)
        assert answer in json.dumps(await read(client))


async def test_a_room_has_two_addresses(host: RunningHost, ann: str) -> None:
    async with (
        open_client(host, GROUP, ann) as client,
        open_client(host, "/ws/messaging/groups/group7/", ann) as other,
    ):
        one, same = await read(client), await read(other)
        assert one["payload"]["session_id"] == same["payload"]["session_id"]
