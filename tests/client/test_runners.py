"""Clients in programs that know nothing of anyio: each loop's own runner will do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
import uvloop

from busd import Client, Incoming
from tests.client.conftest import PATIENT
from tests.client.restarts import Restartable, until_back

BURST = 100
Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def run_asyncio(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


def run_uvloop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(main())


def run_trio(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    trio.run(main)


@pytest.mark.parametrize("run", [run_asyncio, run_uvloop, run_trio])
def test_a_client_works_under_every_runner(run: Run, tmp_path: Path) -> None:
    """Handlers are started, waited for and started again by what transports call, not tasks."""
    bus = Restartable(tmp_path)
    address = bus.address("ws")

    async def main() -> None:
        async with (
            Client("ann", address=address, **PATIENT) as ann,
            Client("bob", address=address, **PATIENT) as bob,
        ):

            @bob.on("ask")
            async def ask(message: Incoming) -> dict[str, Any]:
                answer = await bob.send(message.sender, {"type": "answer"})
                return answer.acks[0].read()

            @ann.on("answer")
            async def answer(message: Incoming) -> dict[str, Any]:
                await ann.post("bob", {"type": "heard"})
                return {"answer": 42}

            messages = bob.messages()
            asked = await ann.send("bob", {"type": "ask"})
            assert asked.acks[0].read() == {"answer": 42}
            assert (await anext(messages)).type == "heard"
            bus.kill()
            await bus.start()
            await until_back(ann, bob)
            asked = await ann.send("bob", {"type": "ask"})
            assert asked.acks[0].read() == {"answer": 42}

    try:
        run(main)
    finally:
        bus.end()


@pytest.mark.parametrize("run", [run_asyncio, run_uvloop, run_trio])
def test_a_client_takes_a_burst_under_every_runner(run: Run, tmp_path: Path) -> None:
    """What is too much for one turn of the loop waits for another, which a transport plans."""
    bus = Restartable(tmp_path)
    handled: list[int] = []

    async def main() -> None:
        async with (
            Client("ann", address=bus.address("unix")) as ann,
            Client("bob", address=bus.address("unix")) as bob,
        ):

            @bob.on("count")
            async def count(message: Incoming) -> None:
                handled.append(message.payload["number"])

            text = "x" * 1_000
            async with anyio.create_task_group() as tasks:
                for number in range(BURST):
                    payload = {"type": "count", "number": number, "text": text}
                    tasks.start_soon(ann.send, "bob", payload)

    try:
        run(main)
    finally:
        bus.end()
    assert sorted(handled) == list(range(BURST))
