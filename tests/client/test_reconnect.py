"""Reconnecting: what becomes of clients when the bus dies, and when it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd import BusUnreachable, CallRefused, Client, ConnectionLost, Incoming
from tests.client.conftest import PATIENT
from tests.client.restarts import Restartable, until_back
from tests.client.scripted_bus import Script, ScriptedLine, open_scripted_bus, process_message
from tests.daemons import PATIENCE_SECONDS
from tests.wire_peers import Transport

pytestmark = pytest.mark.anyio


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Restartable]:
    """A daemon that this test may kill."""
    restartable = Restartable(tmp_path)
    yield restartable
    restartable.end()


def answer_with_address(client: Client) -> None:
    client.on()(lambda message: {"to": message.to})


async def lose_line(client: Client, bus: Restartable) -> ConnectionLost:
    """Kill the bus while a message of `client` to itself is being thought about."""
    arrived = anyio.Event()
    lost: list[ConnectionLost] = []

    @client.on("think")
    async def think(message: Incoming) -> None:
        arrived.set()
        await anyio.sleep_forever()

    async def send() -> None:
        with pytest.raises(ConnectionLost) as raised:
            await client.send(client.client_id, {"type": "think"})
        lost.append(raised.value)

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await arrived.wait()
            bus.kill()
    return lost[0]


@pytest.mark.parametrize("transport", ["unix", "ws"])
async def test_after_a_crash_of_the_bus_everybody_is_back_with_name_and_subscriptions(
    bus: Restartable, transport: Transport
) -> None:
    address = bus.address(transport)
    async with (
        Client("ann", address=address, **PATIENT) as ann,
        Client("bob", address=address, **PATIENT) as bob,
    ):
        answer_with_address(bob)
        await bob.subscribe("team:*")
        await bob.subscribe("old:*")
        await bob.unsubscribe("old:*")
        bus.kill()
        await bus.start()
        await until_back(ann, bob)
        for to in ("bob", "team:red"):
            assert (await ann.send(to, {})).acks[0].read() == {"to": to}
        assert not (await ann.send("old:1", {})).acks


async def test_the_messages_loop_goes_on_after_a_crash_of_the_bus(bus: Restartable) -> None:
    address = bus.address()
    async with (
        Client("ann", address=address, **PATIENT) as ann,
        Client("bob", address=address, **PATIENT) as bob,
    ):

        async def read() -> None:
            async for message in bob.messages():
                await message.reply(message.payload)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            assert (await ann.send("bob", {"number": 1})).acks[0].read() == {"number": 1}
            bus.kill()
            await bus.start()
            await until_back(ann, bob)
            assert (await ann.send("bob", {"number": 2})).acks[0].read() == {"number": 2}
            tasks.cancel_scope.cancel()


async def test_a_program_hears_that_the_line_is_lost_and_open_again(
    bus: Restartable, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[bool] = []
    async with Client("ann", address=bus.address(), **PATIENT) as ann:

        @ann.on_line
        def fail(is_open: bool) -> None:
            raise ValueError(is_open)  # its own fault: nobody else notices

        ann.on_line(heard.append)
        for _ in range(2):
            bus.kill()
            await bus.start()
            await until_back(ann)
    assert heard == [False, True] * 2  # and nothing at the end, which is our own
    assert caplog.text.count("ValueError: ") == 4


async def test_a_send_in_flight_says_that_it_may_have_been_delivered(bus: Restartable) -> None:
    async with Client("ann", address=bus.address(), **PATIENT) as ann:
        lost = await lose_line(ann, bus)
        assert lost.maybe_delivered
        assert str(lost) == "connection to the bus lost: message to ann may have been delivered"


async def test_a_send_without_a_line_waits_until_the_bus_is_back(bus: Restartable) -> None:
    async with Client("ann", address=bus.address(), **PATIENT) as ann:
        answer_with_address(ann)
        await lose_line(ann, bus)
        answers: list[Any] = []

        async def send() -> None:
            answers.append((await ann.send("ann", {})).acks[0].read())

        async def post() -> None:
            answers.append((await ann.post("nobody", {})).undelivered)

        async def subscribe() -> None:
            await ann.subscribe("team:*")
            answers.append((await ann.send("team:red", {})).acks[0].read())

        async with anyio.create_task_group() as tasks:
            for wait in (send, post, subscribe):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert answers == []
            await bus.start()
        assert {"to": "ann"} in answers
        assert {"to": "team:red"} in answers
        assert "no route" in answers


async def test_a_send_without_a_line_gives_up_after_its_time(bus: Restartable) -> None:
    async with Client("ann", address=bus.address(), **PATIENT) as ann:
        await lose_line(ann, bus)
        for timeout_seconds in (0.05, 0):
            with pytest.raises(BusUnreachable, match="nothing was sent"):
                await ann.send("ann", {}, timeout_seconds=timeout_seconds)


async def test_an_unsubscribe_without_a_line_holds_when_the_bus_is_back(bus: Restartable) -> None:
    async with Client("ann", address=bus.address(), **PATIENT) as ann:
        await ann.subscribe("a:*")
        await ann.subscribe("b:*")
        await lose_line(ann, bus)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ann.unsubscribe, "a:*")
            await anyio.wait_all_tasks_blocked()
            await bus.start()
        connections = (await ann.status())["connections"]
        [me] = [each for each in connections if each["clientId"] == "ann"]
        assert me["subscriptions"] == ["ann", "b:*"]


async def test_a_client_can_be_closed_while_there_is_no_bus(bus: Restartable) -> None:
    async with Client("ann", address=bus.address(), **PATIENT) as ann:
        await lose_line(ann, bus)


class Visits:
    """Scripts for the first, the second … connection to a scripted bus."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)

    async def __call__(self, line: ScriptedLine) -> None:
        await self._scripts.pop(0)(line)


async def welcome_and_leave(line: ScriptedLine) -> None:
    await line.welcome()


async def welcome_and_answer(line: ScriptedLine) -> None:
    await line.welcome()
    while True:
        await line.answer(await line.read(), {"timestamp": "now"})


async def refuse_for_good(line: ScriptedLine) -> None:
    await line.refuse(await line.read(), -32005, "who are you")


async def refuse_for_now(line: ScriptedLine) -> None:
    await line.refuse(await line.read(), -32004, "too busy")


async def test_a_bus_that_refuses_a_client_that_comes_back_is_not_asked_again(
    tmp_path: Path,
) -> None:
    script = Visits(welcome_and_leave, refuse_for_good)
    async with (
        open_scripted_bus(tmp_path / "bus.sock", script) as address,
        Client("ann", address=address, **PATIENT) as ann,
    ):
        with anyio.fail_after(PATIENCE_SECONDS):
            with pytest.raises(CallRefused, match="who are you"):
                await ann.run_forever()
            with pytest.raises(CallRefused, match="who are you"):
                await anext(ann.messages())
            with pytest.raises(CallRefused, match="who are you"):
                await ann.send("bob", {})


async def hear_nothing(line: ScriptedLine) -> None:
    await line.listen_forever()


async def hang_up(line: ScriptedLine) -> None: ...


@pytest.mark.parametrize("trouble", [refuse_for_now, hear_nothing, hang_up])
async def test_a_bus_that_is_not_itself_yet_is_asked_again(tmp_path: Path, trouble: Script) -> None:
    script = Visits(welcome_and_leave, trouble, trouble, welcome_and_answer)
    async with (
        open_scripted_bus(tmp_path / "bus.sock", script) as address,
        Client("ann", address=address, timeout_seconds=0.2) as ann,
    ):
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                try:
                    assert await ann.ping() == "now"
                    break
                except (ConnectionLost, BusUnreachable):
                    continue


async def test_what_is_said_not_to_be_sent_has_not_arrived(tmp_path: Path) -> None:
    """A bus hands over a message and ends its half of the line, but goes on reading."""
    rounds = 15
    arrived: set[str] = set()
    outcomes: dict[str, bool] = {}

    async def script(line: ScriptedLine) -> None:
        await line.welcome()
        await line.say(*(process_message(n, "ann", {"type": "go"}) for n in range(3)))
        await line.stream.send_eof()
        while True:
            said = await line.read()
            if said.get("method") == "sendMessage":
                arrived.add(said["params"]["messageId"])

    async def visit(address: str) -> None:
        async with Client("ann", address=address, **PATIENT) as ann:
            heard = anyio.Event()

            @ann.on("go")
            async def send(message: Incoming) -> None:
                message_id = f"{len(outcomes)}"
                outcomes[message_id] = False
                try:
                    await ann.post("bob", {}, message_id=message_id)
                except ConnectionLost as lost:
                    outcomes[message_id] = lost.maybe_delivered
                heard.set()

            with anyio.fail_after(PATIENCE_SECONDS):
                await heard.wait()

    async with open_scripted_bus(tmp_path / "bus.sock", script) as address:
        for _ in range(rounds):
            await visit(address)
    assert arrived <= {message_id for message_id, maybe in outcomes.items() if maybe}
