"""Graceful restarts of the bus under five senders at full speed, durable and not.

The senders and their receiver are one process; `run_rolling` restarts the bus under it. The
durable senders must not notice anything.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from busd import BusdError, CallRefused, Client, ConnectionLost
from busd.bus.message import Receipt
from tests.crash.forks import fork_forever
from tests.crash.kills import open_scene
from tests.crash.processes import Processes
from tests.crash.sender import FINISH, open_client, state_of
from tests.daemons import Loop

_SENDERS = 5


class Rolled(msgspec.Struct):
    """What the senders were told, and what was not received."""

    is_durable: bool
    told: dict[str, int] = {}
    lost: int = 0  # acked or kept, never received
    unflagged: int = 0
    repeated: int = 0
    restarts: int = 0

    @property
    def sent(self) -> int:
        return sum(self.told.values())

    @property
    def not_delivered(self) -> dict[str, int]:
        """What is neither acked nor kept."""
        good = ("acked", "kept", "retrying")
        return {what: count for what, count in self.told.items() if what not in good}

    def __str__(self) -> str:
        told = ", ".join(f"{count} {what}" for what, count in sorted(self.told.items()))
        return (
            f"{'durable' if self.is_durable else 'plain'}: {self.sent} messages, {self.restarts} "
            f"restarts: {told}; {self.lost} lost, {self.repeated} received again"
        )


class Senders:
    """Five senders and their receiver."""

    def __init__(
        self, folder: Path, name: str, events: int, *, flight: int, is_durable: bool
    ) -> None:
        self._is_durable = is_durable
        self._flight = flight  # messages of one sender at a time
        self._finish = folder / FINISH
        self._report = folder / f"{name}.json"
        self._receiver = name
        self._events = events
        self._told: Counter[str] = Counter()
        self._promised: set[str] = set()  # ids of messages acked or kept
        self._received: dict[str, list[int]] = defaultdict(list)

    async def run(self, address: str) -> None:
        receiver = await open_client(self._receiver, address)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._receive, receiver)
            async with anyio.create_task_group() as sending:
                for number in range(_SENDERS):
                    name = f"{self._receiver}.from{number}"
                    sending.start_soon(self._send_all, name, address)
            while not self._is_complete:
                await anyio.sleep(0.05)  # the rest of what is kept
            tasks.cancel_scope.cancel()
        await receiver.__aexit__(None, None, None)
        again = [attempt for each in self._received.values() for attempt in each[1:]]
        report = Rolled(
            self._is_durable,
            dict(self._told),
            len(self._promised - set(self._received)),
            sum(attempt < 2 for attempt in again),
            len(again),
        )
        self._report.write_bytes(msgspec.json.encode(report))

    @property
    def _is_complete(self) -> bool:
        return not self._is_durable or self._promised <= set(self._received)

    async def _receive(self, receiver: Client) -> None:
        async for message in receiver.messages():
            self._received[message.message_id].append(message.delivery_attempt)
            await message.reply()

    async def _send_all(self, name: str, address: str) -> None:
        client = await open_client(name, address)
        async with anyio.create_task_group() as tasks:
            for number in range(self._flight):
                tasks.start_soon(self._send_in_turn, client, number)
        await client.__aexit__(None, None, None)

    async def _send_in_turn(self, client: Client, number: int) -> None:
        count = 0
        while not self._finish.exists():
            count += 1
            await self._send(client, f"{client.client_id}.{number}.{count}")

    async def _send(self, client: Client, message_id: str) -> None:
        what = await self._try(client, message_id)
        self._told[what] += 1
        if what in ("acked", "kept", "retrying"):
            self._promised.add(message_id)
        with suppress(BlockingIOError):
            os.write(self._events, b".")

    async def _try(self, client: Client, message_id: str) -> str:
        try:
            receipt: Receipt = await client.send(
                self._receiver, {}, message_id=message_id, durable=self._is_durable
            )
        except ConnectionLost as problem:
            return "maybe delivered" if problem.maybe_delivered else "not sent"
        except CallRefused as refusal:
            return f"refused ({refusal})"
        except BusdError as problem:
            return type(problem).__name__
        if any(not ack.success for ack in receipt.acks) and not receipt.mail:
            return f"failed ({receipt.acks[0].message})"
        return state_of(receipt)


def run_rolling(
    loop: Loop,
    restarts: int,
    messages: int,
    *,
    is_durable: bool,
    flight: int = 16,
    processes: Processes | None = None,
) -> Rolled:
    """Restart the bus so many times while so many messages are sent; return what was told."""
    name = "agent:durable" if is_durable else "agent:plain"
    words = ["--flight", str(flight), *(["--durable"] if is_durable else [])]
    with open_scene(loop, processes=processes) as scene:
        scene.start()
        scene.add("rolling", name, "--address", f"unix:{scene.path}", *words)
        scene.senders.append(name)
        for _ in range(restarts):
            scene.wait(messages // (restarts + 1))
            scene.stop()
            scene.start()
        scene.wait(messages // (restarts + 1))
        scene.wait_until_delivered()
        scene.stop()
        assert not scene.faults, scene.faults[:5]
        report = (scene.folder / f"{name}.json").read_bytes()
    found = msgspec.json.decode(report, type=Rolled)
    found.restarts = restarts
    return found


def main(args: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--flight", type=int, default=16)
    parser.add_argument("--events", type=int, required=True)
    chosen = parser.parse_args(args)
    senders = Senders(
        chosen.folder,
        chosen.name,
        chosen.events,
        flight=chosen.flight,
        is_durable=chosen.durable,
    )
    fork_forever(chosen.name, lambda: anyio.run(senders.run, chosen.address))
