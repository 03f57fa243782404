"""How many entries the store keeps per second: `python -m tests.gateway.store.speed`."""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from functools import partial
from pathlib import Path

import anyio

from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_thread import StoreThread
from tests.gateway.store.opened import conversation, outgoing, words

CALLERS = (1, 16, 256)
TEXT = "x" * 200


def keep(session_id: str, name: str, store: Store) -> None:
    store.keep(session_id, words(name, TEXT, timestamp="2026-01-01T00:00:00Z"))


def say(session_id: str, name: str, store: Store) -> None:
    """Keep an entry with a message for the bus, and delete the one before."""
    entry = store.keep(session_id, words(name, TEXT, timestamp="2026-01-01T00:00:00Z")).entry
    store.put_outbox(session_id, outgoing(str(entry.number), b"x" * 300))
    store.remove_outbox(session_id, str(entry.number - 1))


async def measure(folder: Path, callers: int, seconds: float, *, has_outbox: bool) -> str:
    operation = say if has_outbox else keep
    count = 0
    async with StoreThread(folder / f"{callers}{has_outbox}.db", StoreLimits()) as thread:
        sessions = [conversation(f"c{number}", f"u{number % 7}") for number in range(callers)]
        for each in sessions:
            await thread.run(partial(Store.create, new=each))
        start, cpu = time.perf_counter(), _cpu_seconds()

        async def call(session_id: str) -> None:
            nonlocal count
            number = 0
            while time.perf_counter() < start + seconds:
                number += 1
                await thread.run(partial(operation, session_id, f"entry {number:030}"))
                count += 1

        async with anyio.create_task_group() as tasks:
            for each in sessions:
                tasks.start_soon(call, each.session_id)
        rate = count / (time.perf_counter() - start)
        what = "entry and outbox" if has_outbox else "entry"
        used = (_cpu_seconds() - cpu) / count * 1e6
    return f"{what}, {callers} callers: {rate:,.0f} per second, {used:.0f} µs CPU each"


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def main(folder: Path, seconds: float) -> None:
    for has_outbox in (False, True):
        for callers in CALLERS:
            print(await measure(folder, callers, seconds, has_outbox=has_outbox))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--loop", choices=["uvloop", "asyncio", "trio"], default="uvloop")
    options = parser.parse_args()
    is_trio = options.loop == "trio"
    with tempfile.TemporaryDirectory() as name:
        anyio.run(
            main,
            Path(name),
            options.seconds,
            backend="trio" if is_trio else "asyncio",
            backend_options={} if is_trio else {"use_uvloop": options.loop == "uvloop"},
        )
