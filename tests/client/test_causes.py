"""Causes: what a client sends while it handles a message names that message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from busd import CallRefused, Client, Incoming, SyncClient
from busd.agent.agent import Agent
from busd.agent.turn import Turn
from tests.client.conftest import PATIENT, MakeClient
from tests.client.scripted_bus import Json, ScriptedLine, open_scripted_bus, process_message
from tests.daemons import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

WORDS = {"type": "tg_message", "content": {"text": "hi", "channel": "telegram"}}
Send = Callable[..., Awaitable[Any]]


class Recorder:
    """A bus that hands over one message, and notes what the client sends."""

    def __init__(self, *, takes_causes: bool = True) -> None:
        self.sent: list[Json] = []
        self._extensions = {"causedBy": True} if takes_causes else {}
        self._is_full = anyio.Event()
        self._wanted = 1

    async def __call__(self, line: ScriptedLine) -> None:
        hello = await line.read()
        extensions = {"capabilities": {"extensions": self._extensions}}
        await line.answer(hello, {"serverId": "bus-scripted", **extensions})
        await line.say(process_message(7, "agent:w", WORDS))
        while True:
            request = await line.read()
            if request.get("method") == "sendMessage":
                self.sent.append(request["params"])
                receipt = {"accepted": True, "messageId": "m", "acks": [{"success": True}]}
                await line.answer(request, receipt)
                if len(self.sent) >= self._wanted:
                    self._is_full.set()
            elif "method" in request:
                await line.answer(request, {"timestamp": "now"})

    async def causes(self, count: int = 1) -> list[str | None]:
        """Return the causes of what was sent, as soon as there is so much."""
        self._wanted = count
        if len(self.sent) < count:
            self._is_full = anyio.Event()
            with anyio.fail_after(PATIENCE_SECONDS):
                await self._is_full.wait()
        return [each.get("causedBy") for each in self.sent]


@asynccontextmanager
async def recorded(folder: Path, bus: Recorder) -> AsyncIterator[Client]:
    async with (
        open_scripted_bus(folder / "bus.sock", bus) as address,
        Client("agent:w", address=address, **PATIENT) as client,
    ):
        yield client


async def test_what_a_handler_sends_is_caused_by_its_message(tmp_path: Path) -> None:
    bus = Recorder()
    async with recorded(tmp_path, bus) as client:

        @client.on()
        async def answer(message: Incoming) -> None:
            await client.send("tg:1", {})
            await client.post("tg:1", {})

        assert await bus.causes(2) == ["msg_7", "msg_7"]
        await client.send("tg:1", {})
        assert await bus.causes(3) == ["msg_7", "msg_7", None]


async def test_the_tasks_and_threads_of_a_handler_know_the_cause_too(tmp_path: Path) -> None:
    bus = Recorder()
    async with recorded(tmp_path, bus) as client, anyio.create_task_group() as tasks:

        @client.on()
        async def answer(message: Incoming) -> None:
            tasks.start_soon(partial(client.send, "tg:1", {}))
            await to_thread.run_sync(
                lambda: anyio.from_thread.run(partial(client.send, "tg:2", {}))
            )

        assert await bus.causes(2) == ["msg_7", "msg_7"]


async def test_the_caller_may_name_another_cause_or_none(tmp_path: Path) -> None:
    bus = Recorder()
    async with recorded(tmp_path, bus) as client:

        @client.on()
        async def answer(message: Incoming) -> None:
            await client.send("tg:1", {}, caused_by="other")
            await client.post("tg:1", {}, caused_by="")

        assert await bus.causes(2) == ["other", ""]
        await client.post("tg:1", {}, caused_by="m1")
        assert (await bus.causes(3))[2] == "m1"


async def test_a_bus_that_does_not_know_causes_gets_none(tmp_path: Path) -> None:
    bus = Recorder(takes_causes=False)
    async with recorded(tmp_path, bus) as client:

        @client.on()
        async def answer(message: Incoming) -> None:
            await client.send("tg:1", {})
            await client.send("tg:1", {}, caused_by="other")

        await bus.causes(2)
    assert not any("causedBy" in each for each in bus.sent)


async def test_what_a_loop_over_messages_sends_begins_a_chain(tmp_path: Path) -> None:
    """A person may be asked in it what to send next: that is no loop of programs."""
    bus = Recorder()
    async with recorded(tmp_path, bus) as client:
        await anext(client.messages())
        await client.send("tg:1", {})
        assert await bus.causes() == [None]


async def test_the_handlers_of_threads_know_the_cause_too(tmp_path: Path) -> None:
    bus = Recorder()

    def serve(address: str) -> None:
        with SyncClient("agent:w", address=address, **PATIENT) as client:

            @client.on()
            def answer(message: Any) -> None:
                client.send("tg:1", {})
                client.post("tg:1", {}, caused_by="other")

            anyio.from_thread.run(partial(bus.causes, 2))
            client.send("tg:1", {})

    async with open_scripted_bus(tmp_path / "bus.sock", bus) as address:
        await to_thread.run_sync(serve, address)
    assert await bus.causes(3) == ["msg_7", "other", None]


async def test_everything_that_an_agent_says_in_a_turn_is_caused_by_its_message(
    tmp_path: Path,
) -> None:
    bus = Recorder()
    async with open_scripted_bus(tmp_path / "bus.sock", bus) as address:
        agent = Agent("agent:w", talkto="tg:1", address=address, arguments=[])

        @agent.answers
        async def answer(turn: Turn) -> str:
            await turn.delta("h")
            await agent.client.send("agent:other", {})
            return "hi"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.serve)
            assert await bus.causes(3) == ["msg_7", "msg_7", "msg_7"]
            tasks.cancel_scope.cancel()
    assert [each["to"] for each in bus.sent] == ["events:tg:1", "agent:other", "tg:1"]


@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
async def test_two_clients_that_answer_each_other_are_stopped(
    client: MakeClient, durable: bool
) -> None:
    async with client("ann") as ann, client("bob") as bob, anyio.create_task_group() as tasks:
        refusals: list[Any] = []
        is_over = anyio.Event()

        def answer_with(me: Client, other: Client) -> None:
            async def say(number: int) -> None:
                try:
                    await me.post(other.client_id, {"number": number + 1}, durable=durable)
                except CallRefused as refusal:
                    refusals.append((refusal.data, number))
                    is_over.set()

            @me.on()
            async def answer(message: Incoming) -> None:
                tasks.start_soon(say, message.payload["number"])

        answer_with(ann, bob)
        answer_with(bob, ann)
        await ann.post(bob.client_id, {"number": 0})
        with anyio.fail_after(PATIENCE_SECONDS):
            await is_over.wait()
    [(data, number)] = refusals
    assert (data["rule"], data["hops"], number) == ("loop.hops", 65, 64)
    assert set(data["path"]) == {ann.client_id, bob.client_id}
