"""Spawn time: from a new chat's first message to its agent's answer, beside bare interpreters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import anyio
import msgspec

from bench.report import make_table
from bench.servers import ROOT, Server, ServerError
from busd import BusdError, Client

NAME = "spawn"
TITLE = "from the first message of a new chat to its agent's answer, ms"
SPAWNERS = ("subprocess", "systemd")
FLOOR = "python -c pass"
BARE = {
    FLOOR: "pass",
    "python -c 'import busd.client.client'": "import busd.client.client",
}
READY, ANSWERED = "agent ready ({})", "agent has answered ({})"
ANSWER_SECONDS = 30.0
HOW = """\
Wall-clock time on the machine as it is, medians of interleaved rounds. A round starts the two
interpreters and waits for their end, then sends one `tg_message` to `system:route` for a new chat,
for each spawner: it is ready when the lifecycle event `ready` arrives, and has answered when the
`tg_reply` of the built-in echo worker does."""


class Starts(msgspec.Struct):
    """What all rounds gave: milliseconds by row, and what went wrong."""

    samples: dict[str, list[float]] = {}
    faults: list[str] = []
    left_out: list[str] = []

    def note(self, row: str, seconds: float) -> None:
        self.samples.setdefault(row, []).append(seconds * 1000)


def measure_starts(rounds: int, say: Callable[[str], None]) -> Starts:
    """Take all samples."""
    starts = Starts()
    servers = {name: server for name in SPAWNERS if (server := _start(name, starts))}
    try:
        for number in range(rounds):
            say(f"spawn, round {number + 1}/{rounds}")
            for row, code in BARE.items():
                starts.note(row, _time_interpreter(code))
            for name, server in servers.items():
                _take_spawn(name, server, number, starts)
    finally:
        for server in servers.values():
            server.stop()
    return starts


def _start(spawner: str, starts: Starts) -> Server | None:
    """Start a bus with this spawner; None, with a reason, where it cannot be."""
    if spawner == "systemd" and not _has_systemd():
        starts.left_out.append("spawn by systemd (no service manager here)")
        return None
    try:
        return Server(f"busd uvloop+{spawner}")
    except ServerError as fault:
        starts.faults.append(f"spawn ({spawner}): {fault}")
        return None


def _has_systemd() -> bool:
    if not shutil.which("systemctl"):
        return False
    manager = ["--user"] if os.geteuid() else []
    asked = ["systemctl", *manager, "show", "--property", "Version"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def _time_interpreter(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    return time.perf_counter() - began


def _take_spawn(name: str, server: Server, number: int, starts: Starts) -> None:
    try:
        ready, answered = anyio.run(_time_spawn, server.address("unix"), f"bench-{number}")
    except (BusdError, TimeoutError) as fault:
        starts.faults.append(f"spawn ({name}), round {number + 1}: {fault or 'no answer in time'}")
        return
    starts.note(READY.format(name), ready)
    starts.note(ANSWERED.format(name), answered)


async def _time_spawn(address: str, chat: str) -> tuple[float, float]:
    """Return the seconds until the agent of a new chat is ready, and until it has answered."""
    me = f"terminal:{chat}"
    content = {"text": "hello", "senderId": chat, "channel": "terminal"}
    async with Client(me, address=address) as bus:
        await bus.subscribe("system:events")
        began = time.perf_counter()
        await bus.post("system:route", {"type": "tg_message", "from": me, "content": content})
        ready = 0.0
        with anyio.fail_after(ANSWER_SECONDS):
            async for message in bus.messages():
                if message.type == "tg_reply":
                    return ready or time.perf_counter() - began, time.perf_counter() - began
                if message.type == "agent_event" and _is_ready(message.payload, chat):
                    ready = time.perf_counter() - began
    raise TimeoutError("the bus went away")


def _is_ready(payload: dict[str, dict[str, object]], chat: str) -> bool:
    content = payload["content"]
    data = content.get("data")
    is_ours = isinstance(data, dict) and data.get("chat_id") == chat
    return content["event"] == "ready" and is_ours


def make_spawn_section(starts: Starts) -> str:
    """The table, and how it was measured."""
    lines = []
    floor = starts.samples.get(FLOOR, [])
    for row, values in starts.samples.items():
        ratio = f"{median(values) / median(floor):.2f}" if floor else "–"
        spread = f"{min(values):.0f}–{max(values):.0f}"
        lines.append((row, f"{median(values):.0f}", spread, ratio))
    table = make_table([NAME, "ms", "min–max", "× interpreter"], lines)
    return f"## {NAME}: {TITLE}\n\n{table}\n\n{HOW}"
