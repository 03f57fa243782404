"""A bridge for the tests: it sends what users say, and keeps all that comes back."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from busd import Ack, Client
from tests.daemons import PATIENCE_SECONDS, Daemon

# -S: no site packages to look through, so that 200 of them start in a moment.
LIGHT = [sys.executable, "-I", "-S", str(Path(__file__).with_name("light_agent.py"))]


def light_workers(**more: object) -> dict[str, object]:
    """Return settings whose workers are light, and start and stop quickly."""
    return {
        "workers.default.agent": LIGHT,
        "workers.default.spawner": "subprocess",
        "workers.default.restart_seconds": 0.05,
        "agents.stop_seconds": 1.0,
        **more,
    }


class Bridge:
    """A peer that is subscribed to all chats, and to what happens to agents."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.heard: list[tuple[str, dict[str, Any]]] = []  # address, payload
        self._news = anyio.Event()

    async def listen(self) -> None:
        async for message in self.client.messages():
            self.heard.append((message.to, message.read(dict)))
            self._news.set()
            self._news = anyio.Event()

    async def route(self, chat: str, text: str, message_id: str | None = None) -> Ack:
        """Say something in a chat, to whoever is its agent."""
        return await self.say("system:route", chat, text, message_id)

    async def say(self, to: str, chat: str, text: str, message_id: str | None = None) -> Ack:
        payload = {"type": "tg_message", "content": {"text": text}}
        receipt = await self.client.send(to, payload, sender=f"tg:{chat}", message_id=message_id)
        assert len(receipt.acks) == 1, receipt
        return receipt.acks[0]

    async def spawn(self, chat: str, to: str = "system:spawn", **content: object) -> Ack:
        """Ask for the agent of a chat."""
        asked = {"chat_id": chat, "channel": "telegram", "channel_type": "telegram", **content}
        payload = {"type": "spawn_request", "from": "tg:requester", "content": asked}
        receipt = await self.client.send(to, payload)
        assert len(receipt.acks) == 1, receipt
        return receipt.acks[0]

    async def wait_for(self, is_it: Callable[[str, dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first payload that is it, heard already or yet to come."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                news = self._news
                for address, payload in self.heard:
                    if is_it(address, payload):
                        return payload
                await news.wait()

    async def reply(self, chat: str, number: int = 1) -> str:
        """Return the text of the n-th reply in a chat."""
        await self.wait_for(lambda *_: len(self.replies(chat)) >= number)
        return self.replies(chat)[number - 1]

    def replies(self, chat: str) -> list[str]:
        return [
            payload["content"]["text"]
            for address, payload in self.heard
            if address == f"tg:{chat}" and payload["type"] == "tg_reply"
        ]

    async def event(self, name: str, number: int = 1) -> dict[str, Any]:
        """Return the data of the n-th event of that name."""
        await self.wait_for(lambda *_: len(self.events(name)) >= number)
        return self.events(name)[number - 1]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [
            payload["content"]["data"]
            for address, payload in self.heard
            if address == "system:events" and payload["content"].get("event") == name
        ]

    async def call(self, method: str, **params: object) -> Any:
        return await self.client.call(method, params)

    async def agent(self, number: int = 0) -> dict[str, Any]:
        """Return the record of an agent."""
        found: dict[str, Any] = (await self.call("agents.list"))["agents"][number]
        return found


@asynccontextmanager
async def open_bridge(daemon: Daemon) -> AsyncIterator[Bridge]:
    async with Client("telegram-bridge", address=f"unix:{daemon.path}") as client:
        bridge = Bridge(client)
        for pattern in ("tg:*", "events:tg:*"):
            await client.subscribe(pattern)
        await client.subscribe("system:events")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.listen)
            yield bridge
            tasks.cancel_scope.cancel()


async def next_line(bridge: Bridge, client_id: str, after: str | None = None) -> dict[str, str]:
    """Return the first line after another one, as `busd agents logs --follow` asks for it."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            found = await bridge.call("agents.logs", clientId=client_id, after=after)
            for line in found["lines"]:
                first: dict[str, str] = line
                return first
            await anyio.sleep(0.02)  # journald, or the keeper, writes when it has the time
