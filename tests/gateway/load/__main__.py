"""Many clients chat at once: `python -m tests.gateway.load --clients 2000 --seconds 30`.

A real daemon, a real gateway and real WebSocket clients (AgentIQ), which each say something, wait
for the answer, think, and go on. One agent answers all of them at once, so that what is measured is
the gateway and the bus. Beside them, two peers of the bus exchange messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from busd import Client, Incoming, TgMessage, event_address, read_message
from tests.daemons import Daemon, open_daemon
from tests.plugins.gateway.asking import open_gateway_of

_AGENT = "agent:load"
_AT_ONCE = 50  # connections that are opened at a time
_LAST_SECONDS = 60.0


class Figures:
    """What was measured, in milliseconds."""

    def __init__(self) -> None:
        self.answers: list[float] = []
        self.pings: list[float] = []
        self.missing = 0
        self.errors: Counter[str] = Counter()


def main() -> None:
    """Print how long answers took, and what the processes needed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="of chatting")
    parser.add_argument("--pause", type=float, default=10.0, help="between two messages, average")
    chosen = parser.parse_args()
    settings = {
        "gateway.enabled": True,
        "gateway.listen": "127.0.0.1:0",
        "gateway.agent": _AGENT,
        "gateway.dialects": ["agentiq"],
    }
    with open_daemon("uvloop", settings) as daemon, open_gateway_of(daemon) as gateway:
        host, port = gateway.place()
        pid = gateway.status()["pid"]
        asyncio.run(_measure(chosen, daemon, f"ws://{host}:{port}/websocket", pid))


async def _measure(chosen: argparse.Namespace, daemon: Daemon, url: str, pid: int) -> None:
    address, figures = f"unix:{daemon.path}", Figures()
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(Client(_AGENT, address=address, concurrency=1_000))
        bus.on("tg_message")(lambda incoming: _answer(bus, incoming))
        print(f"{os.cpu_count()} cores, load average before: {os.getloadavg()[0]:.1f}")
        print("nobody is connected:")
        await _ping_for(min(chosen.seconds, 3.0), address, figures)
        _print_pings(figures)
        before = _rss(pid)
        room = asyncio.Semaphore(_AT_ONCE)
        started = time.monotonic()
        sockets = await asyncio.gather(
            *(_open(stack, url, number, room) for number in range(chosen.clients))
        )
        seconds = time.monotonic() - started
        after = _rss(pid)
        print(f"{chosen.clients} clients connected in {seconds:.1f} s")
        print(f"memory of the gateway: {before} KiB before, {after} KiB after:", end=" ")
        print(f"{(after - before) / chosen.clients:.1f} KiB per client")
        cpu = [_cpu(pid), _cpu(daemon.process.pid)]
        end = time.monotonic() + chosen.seconds
        await asyncio.gather(
            _ping_for(chosen.seconds, address, figures),
            *(
                _chat(socket, number, chosen.pause, end, figures)
                for number, socket in enumerate(sockets)
            ),
        )
        used = [_cpu(pid) - cpu[0], _cpu(daemon.process.pid) - cpu[1]]
        await asyncio.gather(*(socket.close() for socket in sockets))
    count = len(figures.answers)
    print(f"{count} messages answered in {chosen.seconds:g} s, {figures.missing} not:", end=" ")
    print(_summary(figures.answers))
    for error, times in figures.errors.most_common(5):
        print(f"{times} times: {error}")
    print(f"CPU of the gateway {used[0]:.1f} s, of the bus {used[1]:.1f} s:", end=" ")
    print(f"{used[0] / max(count, 1) * 1e6:.0f} and {used[1] / max(count, 1) * 1e6:.0f} µs each")
    print(f"memory of the gateway at the end: {_rss(pid)} KiB")
    _print_pings(figures)


async def _answer(bus: Client, incoming: Incoming) -> None:
    said = read_message(incoming.raw, TgMessage)
    head = incoming.payload
    event = {"turn": head["messageId"], "text": said.text}
    content = {"event": "turn.delta", "data": event}
    await bus.post(event_address(incoming.sender), {"type": "agent_event", "content": content})
    reply = {"text": said.text, "reply_to_message_id": head["messageId"]}
    # With an ack, as agents do: what the bus cannot take at once would be lost.
    await bus.send(incoming.sender, {"type": "tg_reply", "content": reply})


async def _open(
    stack: AsyncExitStack, url: str, number: int, room: asyncio.Semaphore
) -> ClientConnection:
    async with room:
        return await stack.enter_async_context(
            connect(f"{url}?conversation_id=c{number}", compression=None, ping_interval=None)
        )


async def _chat(
    socket: ClientConnection, number: int, pause: float, end: float, figures: Figures
) -> None:
    turn = 0
    while True:
        # From the start: else the first messages and the second ones of others add up.
        left = max(end - time.monotonic(), 0.0)
        await asyncio.sleep(min(random.expovariate(1 / pause), left))
        if time.monotonic() >= end:
            return
        turn += 1
        begun = time.monotonic()
        await socket.send(json.dumps(_words(number, turn)))
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                while (frame := json.loads(await socket.recv()))["status"] != "complete":
                    if frame["type"] == "error_message":
                        figures.errors[str(frame["content"])] += 1
        except TimeoutError:
            figures.missing += 1
            return
        figures.answers.append((time.monotonic() - begun) * 1e3)


def _words(number: int, turn: int) -> dict[str, Any]:
    text = {"type": "text", "text": f"message {turn} of client {number}"}
    return {
        "type": "user_message",
        "schema_type": "chat_stream",
        "id": f"m-{number}-{turn}",
        "conversation_id": f"c{number}",
        "content": {"messages": [{"role": "user", "content": [text]}]},
        "timestamp": "2026-01-01T00:00:00Z",
    }


async def _ping_for(seconds: float, address: str, figures: Figures) -> None:
    """Exchange messages between two peers of the bus."""
    figures.pings.clear()
    async with Client("x:one", address=address) as one, Client("x:two", address=address) as two:
        two.on("ping")(lambda incoming: None)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.monotonic()
            await one.send("x:two", {"type": "ping", "content": {}})
            figures.pings.append((time.monotonic() - begun) * 1e3)
            await asyncio.sleep(0.01)


def _print_pings(figures: Figures) -> None:
    print(f"    two peers of the bus: {_summary(figures.pings)}", flush=True)


def _summary(values: list[float]) -> str:
    if len(values) < 2:
        return "nothing measured"
    parts = statistics.quantiles(values, n=100)
    return f"p50 {parts[49]:.1f}, p99 {parts[98]:.1f}, longest {max(values):.1f} ms"


def _rss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


main()
