"""A sender of durable messages, which may be killed at any time.

It sends to each of its receivers in order, some messages at a time, and sends again what was not
answered: with the same id and before anything later, also after it was killed itself.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec

from busd import BusUnreachable, CallRefused, Client, ConnectionLost, NoAnswer
from busd.bus.message import Receipt
from busd.errors import Busy
from tests.crash.forks import fork_forever
from tests.crash.records import RecordFile, read_records

FINISH = "finish"  # a file in the folder: those without a limit end once all is answered
_PAUSE_SECONDS = 0.02  # between attempts to find the bus


class Sender:
    """One peer that sends."""

    def __init__(self, folder: Path, name: str, limit: int, batch: int, events: int | None) -> None:
        self.name = name
        self._folder = folder
        self._batch = batch  # messages at a time, per receiver, at most
        self._limit = limit  # messages per receiver; 0: until told to finish
        self._open: dict[str, dict[str, int]] = defaultdict(dict)  # receiver -> id -> number
        self._last: dict[str, int] = defaultdict(int)
        path = folder / f"{name}.sent"
        self._load(path)
        self._record = RecordFile(path, events)

    def _load(self, path: Path) -> None:
        """Read what an earlier process has sent."""
        for words in read_records(path):
            if words[0] == "sent":
                _, to, number, message_id = words
                self._open[to][message_id] = self._last[to] = int(number)
            elif words[0] == "answer":
                for ids in self._open.values():
                    ids.pop(words[1], None)

    async def run(self, address: str, receivers: list[str]) -> None:
        client = await open_client(self.name, address)
        async with anyio.create_task_group() as tasks:
            for to in receivers:
                tasks.start_soon(self._send_to, client, to)
        await client.__aexit__(None, None, None)

    async def _send_to(self, client: Client, to: str) -> None:
        while self._open[to] or self._begin(to):
            waits: list[float] = []
            async with anyio.create_task_group() as tasks:
                # They begin in this order, so that the bus gets them in this order.
                for message_id, number in list(self._open[to].items()):
                    tasks.start_soon(self._try, client, to, message_id, number, waits)
            if waits:
                await anyio.sleep(max(waits))

    def _begin(self, to: str) -> bool:
        """Record the next messages; return False if there are none."""
        if not self._limit and (self._folder / FINISH).exists():
            return False
        left = self._limit - self._last[to] if self._limit else self._batch
        for _ in range(min(random.randint(1, self._batch), left)):
            self._last[to] = number = self._last[to] + 1
            message_id = f"{self.name}>{to}#{number}"
            self._open[to][message_id] = number
            self._record.add("sent", to, number, message_id)
        return bool(self._open[to])

    async def _try(
        self, client: Client, to: str, message_id: str, number: int, waits: list[float]
    ) -> None:
        """Send once; what gets no answer stays open."""
        params = {
            "to": to,
            "messageId": message_id,
            "delivery": {"durable": True},
            "payload": {"number": number},
        }
        try:
            answer = await client.caller.call("sendMessage", params, None, message_id)
        except (ConnectionLost, BusUnreachable, NoAnswer):
            return
        except CallRefused as refusal:
            data: Any = refusal.data
            if refusal.code == Busy.code:
                self._record.add("busy", message_id, data["rule"])
                waits.append(data["retrySeconds"])
                return
            self._end(to, message_id, f"error {refusal}")
            return
        self._end(to, message_id, state_of(msgspec.json.decode(answer, type=Receipt)))

    def _end(self, to: str, message_id: str, state: str) -> None:
        self._record.add("answer", message_id, state)
        del self._open[to][message_id]


def state_of(receipt: Receipt) -> str:
    """Return what a sender learns of its message, as one word."""
    if isinstance(receipt.undelivered, str):
        return receipt.undelivered
    if isinstance(receipt.mail, msgspec.UnsetType):
        return "acked" if all(ack.success for ack in receipt.acks) else "failed"
    return receipt.mail.state


async def open_client(name: str, address: str) -> Client:
    """Return a client that is connected, once there is a bus."""
    while True:
        try:
            return await Client(name, address=address).__aenter__()
        except (BusUnreachable, NoAnswer, ConnectionLost):
            await anyio.sleep(_PAUSE_SECONDS)
        except CallRefused as refusal:
            if refusal.code != Busy.code:
                raise
            await anyio.sleep(_PAUSE_SECONDS)


def main(args: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--to", action="append", required=True)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--events", type=int)
    chosen = parser.parse_args(args)

    def send() -> None:
        sender = Sender(chosen.folder, chosen.name, chosen.limit, chosen.batch, chosen.events)
        anyio.run(partial(sender.run, chosen.address, chosen.to))

    fork_forever(chosen.name, send)
