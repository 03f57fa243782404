"""All clients of the tests, by the name of their format."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from tests.gateway.e2e.chat import Chat
from tests.gateway.e2e.place import Place
from tests.gateway.e2e.tkr_chat import PollingTkrChat, TkrChat
from tests.gateway.e2e.web_chat import AgentIqChat, GroupChat, StageChat

CLIENTS: dict[str, type[Chat]] = {
    "tkr": TkrChat,
    "tkr-polling": PollingTkrChat,
    "group": GroupChat,
    "stage": StageChat,
    "agentiq": AgentIqChat,
}


@asynccontextmanager
async def open_chats(*chats: Chat) -> AsyncIterator[None]:
    """Have clients in their conversations, which they enter one after the other."""
    async with anyio.create_task_group() as tasks:
        for chat in chats:
            await tasks.start(chat.serve)
        yield
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_chat(client: str, place: Place, name: str) -> AsyncIterator[Chat]:
    """Have a client in a conversation."""
    chat = CLIENTS[client](place, name)
    async with open_chats(chat):
        yield chat
