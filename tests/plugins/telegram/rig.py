"""A bot: the server of its Bot API, its bridge, and the agent that answers it on a bus."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from busd import Bridge, Client, Incoming, Receipt, Refuse
from busd.bridge import Pace
from busd_plugins.telegram.outage import Timing
from busd_plugins.telegram.settings import TelegramTable
from busd_plugins.telegram.telegram import Telegram
from tests.daemons import PATIENCE_SECONDS
from tests.plugins.telegram.chats import Message
from tests.plugins.telegram.server import Telegram as Server

QUICK = Pace(show_seconds=0.0, refresh_seconds=0.0)
QUICK_TIMING = Timing(
    poll_seconds=20,
    glance_seconds=0.05,
    retry_seconds=0.02,
    max_retry_seconds=0.1,
    conflict_seconds=0.05,
    unauthorized_seconds=0.05,
    check_seconds=0.05,
)


class Rig:
    """One test's bot."""

    def __init__(self, server: Server, address: str, suffix: str, folder: Path) -> None:
        self.server = server
        self.address = address
        self.prefix = f"tg{suffix}"
        self.name = f"telegram-bridge{suffix}"
        self.folder = folder
        self.token_file = folder / "token"
        self.token_file.write_text(server.token)
        self.token_file.chmod(0o600)

    def table(self, **more: Any) -> TelegramTable:
        table = {"api_base": self.server.url, "token_file": str(self.token_file)}
        return TelegramTable(**{**table, **more})

    @asynccontextmanager
    async def bridge(self, pace: Pace = QUICK, **table: Any) -> AsyncIterator[Bridge]:
        """Run the bridge within the block."""
        state = self.folder / "bridge"
        bridge = Bridge(self.name, self.prefix, state=state, address=self.address)
        telegram = Telegram(bridge, self.table(**table), pace=pace, timing=QUICK_TIMING)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(telegram.serve)
            await poll_until(lambda: bridge.status.is_on_bus)
            yield bridge
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[Agent]:
        client = Client(
            f"agent:{self.name}", address=self.address, timeout_seconds=PATIENCE_SECONDS
        )
        agent = Agent(client, self.prefix)
        client.on()(agent.take)
        async with client:
            await client.subscribe("system:route")
            yield agent

    @asynccontextmanager
    async def both(self, **table: Any) -> AsyncIterator[tuple[Bridge, Agent]]:
        async with self.agent() as agent, self.bridge(**table) as bridge:
            yield bridge, agent

    # What users see

    async def shown(self, *texts: str, chat: int = 7) -> list[Message]:
        """Wait until a chat shows these messages of the bot, and no others."""
        await poll_until(lambda: len(self.server.texts(chat)) >= len(texts))
        assert self.server.texts(chat) == list(texts)
        return [each for each in self.server.messages if each.chat == chat]


class Agent:
    """Gets what users say, and replies as a test wants it."""

    def __init__(self, client: Client, prefix: str) -> None:
        self.client = client
        self.got: list[dict[str, Any]] = []
        self.refusals: list[Refuse] = []
        self._prefix = prefix
        self._ids = count(1)

    async def take(self, message: Incoming) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.got.append({"sender": message.sender, **message.payload})

    async def heard(self, number: int = 1) -> list[dict[str, Any]]:
        """Return the contents of the messages of users, as soon as there are so many."""
        await poll_until(lambda: len(self.messages()) >= number)
        assert len(self.messages()) == number, self.messages()
        return self.messages()

    def messages(self) -> list[dict[str, Any]]:
        return [
            {**each["content"], "turn": each["messageId"]}
            for each in self.got
            if each["type"] == "tg_message"
        ]

    def texts(self) -> list[str]:
        return [each["text"] for each in self.messages()]

    async def reply(self, text: str, chat: int = 7, to: str = "", **content: Any) -> Receipt:
        payload: dict[str, Any] = {"type": "tg_reply", "content": {"text": text, **content}}
        payload["messageId"] = content.pop("id", "") or f"r{next(self._ids)}"
        if to:
            payload["reply_to_message_id"] = to
        return await self.client.send(f"{self._prefix}:{chat}", payload)

    async def tell(self, event: str, chat: int = 7, **data: Any) -> Receipt:
        payload = {"type": "agent_event", "content": {"event": event, "data": data}}
        return await self.client.send(f"events:{self._prefix}:{chat}", payload)


async def poll_until(condition: Callable[[], object]) -> None:
    """Wait for what nobody reports."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await anyio.sleep(0.01)


def logged(caplog_text: str, server: Server) -> str:
    """Return what was logged, which never contains the token."""
    assert server.token not in caplog_text
    assert server.token.partition(":")[2] not in caplog_text
    return caplog_text


logging.getLogger("busd.telegram").setLevel(logging.INFO)
