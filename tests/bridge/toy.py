"""A chat system in memory, a bridge to it, and an agent on the bus."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import msgspec

from busd import Bridge, Client, Receipt
from busd.bridge import LiveTurn, Pace, Part
from tests.daemons import PATIENCE_SECONDS

QUICK = Pace(show_seconds=0.0, refresh_seconds=0.0)


class Posted(msgspec.Struct):
    """A message of the toy system."""

    id: str
    chat_id: str
    text: str
    is_repeat: bool = False
    draft: str = ""


class Toy:
    """The toy system; a test says what goes wrong."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self.shown: list[LiveTurn] = []
        self.tried: list[str] = []  # the texts of all attempts
        self.problems: dict[str, list[Exception]] = defaultdict(list)  # by chat, for each attempt
        self.gates: dict[str, anyio.Event] = {}  # by chat: a post waits for it
        self._changed = anyio.Event()
        self._ids = count(1)

    async def post(self, part: Part) -> str:
        self.tried.append(part.text)
        self._wake()
        if gate := self.gates.get(part.chat_id):
            await gate.wait()
        if self.problems[part.chat_id]:
            raise self.problems[part.chat_id].pop(0)
        posted = Posted(f"x{next(self._ids)}", part.chat_id, part.text, part.is_repeat, part.draft)
        self.posted.append(posted)
        self._wake()
        return posted.id

    async def show(self, live: LiveTurn) -> None:
        """Record what is shown, and post nothing for it."""
        self.shown.append(live)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while not condition():
                await self._changed.wait()

    def texts(self, chat_id: str = "1") -> list[str]:
        return [each.text for each in self.posted if each.chat_id == chat_id]


class Place:
    """One test's bridge: its prefix, its folder, its bus and the system outside."""

    def __init__(self, address: str, suffix: str, folder: Path) -> None:
        self.address = address
        self.prefix = f"toy{suffix}"
        self.name = f"toy-bridge{suffix}"
        self.state = folder / "bridge"
        self.toy = Toy()

    def bridge(self, pace: Pace = QUICK) -> Bridge:
        bridge = Bridge(self.name, self.prefix, state=self.state, pace=pace, address=self.address)
        bridge.posts(self.toy.post)
        return bridge

    @asynccontextmanager
    async def serving(self, bridge: Bridge | None = None) -> AsyncIterator[Bridge]:
        """Run a bridge within the block; at its end it is stopped as by a signal."""
        bridge = bridge or self.bridge()
        async with anyio.create_task_group() as tasks:
            with anyio.fail_after(PATIENCE_SECONDS):
                await tasks.start(bridge.serve)
            yield bridge
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[ToyAgent]:
        name = f"agent:{self.name}"
        async with Client(name, address=self.address, timeout_seconds=PATIENCE_SECONDS) as bus:
            yield ToyAgent(bus, self.prefix)


class ToyAgent:
    """Sends replies and events to the chats of a bridge."""

    def __init__(self, bus: Client, prefix: str) -> None:
        self.bus = bus
        self._prefix = prefix
        self._ids = count(1)

    async def reply(
        self,
        text: str,
        chat_id: str = "1",
        *,
        name: str = "",
        to: str = "",
        prompt_id: str = "",
        kept: bool = False,
    ) -> Receipt:
        """Send a reply and return its receipt; the same `name` means the same reply.

        If it is to be kept, it is sent as agents do: the bus tries again until it is posted.
        """
        content = {"text": text} | ({"prompt_id": prompt_id} if prompt_id else {})
        payload: dict[str, Any] = {"type": "tg_reply", "content": content}
        payload["messageId"] = name or f"r{next(self._ids)}"
        if to:
            payload["reply_to_message_id"] = to
        key = os.urandom(8).hex() if kept else ""
        return await self.bus.send(f"{self._prefix}:{chat_id}", payload, idempotency_key=key)

    async def keep(self, text: str, chat_id: str = "1") -> None:
        """Send a reply that the bus keeps until it is posted."""
        await self.reply(text, chat_id, kept=True)

    async def tell(self, event: str, chat_id: str = "1", **data: Any) -> Receipt:
        content = {"event": event, "data": data}
        payload = {"type": "agent_event", "content": content}
        return await self.bus.send(f"events:{self._prefix}:{chat_id}", payload)


async def poll_until(condition: Callable[[], object]) -> None:
    """Wait for what nobody reports."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await anyio.sleep(0.01)


def refused(receipt: Receipt) -> tuple[str, object]:
    """Return why the bridge has refused a reply, and whether it asks for another attempt."""
    [ack] = receipt.acks
    assert not ack.success
    return ack.message, ack.should_retry is True
