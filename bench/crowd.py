"""What others on the bus notice while 200 chats get their agents at once."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from statistics import median

import anyio
import msgspec

from bench.report import make_table
from bench.servers import ROOT, Server, ServerError
from busd import BusdError, Client

CHATS = 200
TITLE = f"round trips of a bystander while {CHATS} agents start at once, ms"
PAUSE_SECONDS = 0.005
QUIET_SECONDS = 3.0
START_SECONDS = 180.0
ALONE = "nothing else goes on"
BESIDE = f"{CHATS} interpreters start beside the bus"
AGENTS = f"{CHATS} chats get their agents from the bus"
HOW = f"""\
One peer sends another a message, waits for the ack, pauses {PAUSE_SECONDS * 1000:g} ms, and so on;
wall-clock time. The second row starts as many interpreters that import the client, without busd:
what the machine alone does to a round trip. The third waits until every chat has its own answer of
the built-in echo worker."""


class Crowd(msgspec.Struct):
    """Round trips in ms by row, how long it took, and what went wrong."""

    samples: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    faults: list[str] = []


def measure_crowd(say: Callable[[str], None]) -> Crowd:
    """Take all samples, each with a fresh bus."""
    crowd = Crowd()
    for row, load in ((ALONE, _nothing), (BESIDE, _interpreters), (AGENTS, _agents)):
        say(f"crowd: {row}")
        try:
            server = Server("busd uvloop+subprocess")
        except ServerError as fault:
            crowd.faults.append(f"crowd: {fault}")
            return crowd
        try:
            anyio.run(_measure, server.address("unix"), row, load, crowd)
        except (BusdError, TimeoutError) as fault:
            crowd.faults.append(f"crowd, {row}: {fault or 'not in time'}")
        finally:
            server.stop()
    return crowd


async def _measure(
    address: str, row: str, load: Callable[[str], Awaitable[None]], crowd: Crowd
) -> None:
    taken = crowd.samples.setdefault(row, [])
    async with _bystanders(address, taken):
        began = time.perf_counter()
        with anyio.fail_after(START_SECONDS):
            await load(address)
        crowd.seconds[row] = time.perf_counter() - began


@asynccontextmanager
async def _bystanders(address: str, taken: list[float]) -> AsyncIterator[None]:
    """Have two peers send and answer until the block ends."""
    async with (
        Client("agent:left", address=address) as left,
        Client("agent:right", address=address) as right,
        anyio.create_task_group() as tasks,
    ):
        right.on()(lambda message: None)
        tasks.start_soon(_send_and_wait, left, taken)
        yield
        tasks.cancel_scope.cancel()


async def _send_and_wait(left: Client, taken: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await left.send("agent:right", {"type": "hello", "content": {}})
        taken.append((time.perf_counter() - began) * 1000)
        await anyio.sleep(PAUSE_SECONDS)


async def _nothing(address: str) -> None:
    await anyio.sleep(QUIET_SECONDS)


async def _interpreters(address: str) -> None:
    """Start them all at once, as the spawner does, and wait for their end."""
    command = [sys.executable, "-c", "import busd.client.client"]
    async with anyio.create_task_group() as tasks:
        for _ in range(CHATS):
            tasks.start_soon(partial(anyio.run_process, command, cwd=ROOT))


async def _agents(address: str) -> None:
    """Write as 200 chats through one bridge, and wait until each has its own answer."""
    missing = {f"terminal:crowd-{number}" for number in range(CHATS)}
    async with Client("crowd-bridge", address=address) as bridge:
        await bridge.subscribe("terminal:*")
        for chat in sorted(missing):
            content = {"text": f"I am {chat}", "channel": "terminal"}
            await bridge.post(
                "system:route", {"type": "tg_message", "content": content}, sender=chat
            )
        async for message in bridge.messages():
            if message.type == "tg_reply" and chat_answered(message.to, message.payload):
                missing.discard(message.to)
            if not missing:
                return


def chat_answered(chat: str, payload: dict[str, dict[str, str]]) -> bool:
    """True if a chat got the answer to its own words."""
    return payload["content"]["text"].endswith(f"I am {chat}")


def make_crowd_section(crowd: Crowd) -> str:
    """The table, and how it was measured."""
    lines = []
    for row, values in crowd.samples.items():
        values = sorted(values)
        p99 = values[len(values) * 99 // 100] if values else 0.0
        middle = median(values) if values else 0.0
        took = f"{crowd.seconds.get(row, 0.0):.1f}"
        figures = (f"{middle:.2f}", f"{p99:.2f}", f"{max(values, default=0.0):.1f}")
        lines.append((row, *figures, f"{len(values):,}", took))
    head = ["meanwhile", "p50 ms", "p99 ms", "max ms", "round trips", "took s"]
    return f"## crowd: {TITLE}\n\n{make_table(head, lines)}\n\n{HOW}"
