"""The life of a client: how it begins, how it ends, and what is raised in between."""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
import pytest

from busd import BusUnreachable, Client, ConnectionLost, Incoming, NoAnswer
from busd.errors import ConfigError, MalformedAddress
from tests.client.conftest import PATIENT, MakeClient
from tests.client.scripted_bus import ScriptedLine, open_scripted_bus
from tests.daemons import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def names(watcher: Client) -> list[str]:
    return [peer["clientId"] for peer in (await watcher.status())["connections"]]


# How it begins


async def test_no_socket_is_a_plain_error(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'bus.sock'}"
    with pytest.raises(BusUnreachable, match=f'no bus at {address}; start one with "busd serve"'):
        async with Client("ann", address=address):
            raise AssertionError("never reached")


async def test_a_socket_that_nobody_listens_on_is_a_plain_error(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
        with pytest.raises(BusUnreachable, match="Connection refused"):
            async with Client("ann", address=f"unix:{path}"):
                raise AssertionError("never reached")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{port}", "ws://localhost:{port}/"])
async def test_a_port_that_nobody_listens_on_is_a_plain_error(address: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can take it
        address = address.format(port=taken.getsockname()[1])
        with pytest.raises(BusUnreachable, match=f"no bus at {address}"):
            async with Client("ann", address=address):
                raise AssertionError("never reached")


@pytest.mark.parametrize("scheme", ["unix", "ws"])
async def test_whoever_listens_but_never_answers_is_not_waited_for(
    tmp_path: Path, scheme: str
) -> None:
    family = socket.AF_UNIX if scheme == "unix" else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind(str(tmp_path / "s") if scheme == "unix" else ("127.0.0.1", 0))
        listener.listen()
        where = listener.getsockname()
        address = f"unix:{where}" if scheme == "unix" else f"ws://127.0.0.1:{where[1]}/"
        with (
            anyio.fail_after(PATIENCE_SECONDS),
            pytest.raises(NoAnswer, match="did not answer in time"),
        ):
            async with Client("ann", address=address, timeout_seconds=0.05):
                raise AssertionError("never reached")


async def test_a_bus_that_lets_us_in_and_is_silent_then_gives_no_answer(tmp_path: Path) -> None:
    heard_enough = anyio.Event()

    async def script(line: ScriptedLine) -> None:
        await line.welcome()
        await heard_enough.wait()

    async with (
        open_scripted_bus(tmp_path / "bus.sock", script) as address,
        Client("ann", address=address, timeout_seconds=0.05) as ann,
    ):
        with pytest.raises(NoAnswer, match="the bus did not answer in time: message to bob"):
            await ann.send("bob", {})
        with pytest.raises(NoAnswer, match="message to bob"):
            await ann.post("bob", {})
        with pytest.raises(NoAnswer, match="ping"):
            await ann.ping()
        assert ann.caller.line is not None
        assert ann.caller.line.calls == {}
        heard_enough.set()


async def test_whoever_hangs_up_at_once_is_no_bus(tmp_path: Path) -> None:
    async def script(line: ScriptedLine) -> None:
        await line.read()

    async with open_scripted_bus(tmp_path / "bus.sock", script) as address:
        with pytest.raises(BusUnreachable, match=f"no bus at {address}"):
            async with Client("ann", address=address, **PATIENT):
                raise AssertionError("never reached")


async def test_a_web_server_that_is_no_bus_is_named_as_such(tmp_path: Path) -> None:
    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nnot me\n")

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(BusUnreachable, match="the bus answered HTTP 404: not me"):
            async with Client("ann", address=f"ws://127.0.0.1:{port}/", **PATIENT):
                raise AssertionError("never reached")
        tasks.cancel_scope.cancel()


def test_a_name_that_is_no_address_is_told_before_anything_is_opened() -> None:
    for name in ("", "two words", "agent:*", "x" * 256):
        with pytest.raises(MalformedAddress):
            Client(name)


def test_an_address_that_is_none_is_told_before_anything_is_opened() -> None:
    with pytest.raises(ConfigError, match="'http://x' is not an address of a bus"):
        Client("ann", address="http://x")


@pytest.mark.parametrize("variable", ["BUSD_ADDRESS", "BUB_BUS_URL"])
async def test_the_environment_says_where_the_bus_is(
    unix: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BUSD_ADDRESS", raising=False)
    monkeypatch.setenv(variable, unix)
    async with Client("ann", **PATIENT) as ann:
        assert await ann.ping()


# How it ends


async def test_a_body_that_never_waits_is_no_trouble(client: MakeClient, address: str) -> None:
    async with client("ann", address=address):
        pass


async def test_what_the_body_raises_comes_out_as_it_is(client: MakeClient) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client("ann"):
            raise ZeroDivisionError

    async def fail_later() -> None:
        async with client("ann") as ann:
            await ann.ping()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_later()


async def test_a_client_can_be_cancelled_from_outside(client: MakeClient) -> None:
    async with client("watcher") as watcher:
        with anyio.CancelScope() as scope:
            async with client("ann") as ann:
                await ann.ping()
                scope.cancel()
                await ann.run_forever()
        assert scope.cancelled_caught
        assert ann.client_id not in await names(watcher)


async def test_the_bus_knows_at_once_that_a_client_has_left(
    client: MakeClient, address: str
) -> None:
    async with client("watcher") as watcher:
        async with client("ann", address=address) as ann:
            assert ann.client_id in await names(watcher)
        assert ann.client_id not in await names(watcher)


async def test_an_answer_given_just_before_the_end_still_arrives(
    client: MakeClient, address: str
) -> None:
    async with client("ann") as ann, anyio.create_task_group() as tasks:
        bob = client("bob", address=address)

        async def answer_one(ready: anyio.Event) -> None:
            async with bob:
                ready.set()
                message = await anext(bob.messages())
                await message.reply({"last": "words"})

        is_ready = anyio.Event()
        tasks.start_soon(answer_one, is_ready)
        with anyio.fail_after(PATIENCE_SECONDS):
            await is_ready.wait()
        assert (await ann.send(bob.client_id, {})).acks[0].read() == {"last": "words"}


async def test_whoever_waits_for_a_client_that_is_closed_hears_of_it(client: MakeClient) -> None:
    ended: list[str] = []

    async def read(bob: Client) -> None:
        async for _ in bob.messages():
            raise AssertionError("there was no message")
        ended.append("messages")

    async def run(bob: Client) -> None:
        await bob.run_forever()
        ended.append("run_forever")

    async def send(bob: Client, to: str) -> None:
        with pytest.raises(ConnectionLost) as lost:
            await bob.send(to, {})
        assert lost.value.maybe_delivered
        ended.append("send")

    async with client("ann") as ann:
        arrived = anyio.Event()

        @ann.on()
        async def think(message: Incoming) -> None:
            arrived.set()
            await anyio.sleep_forever()

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks, client("bob") as bob:
                tasks.start_soon(read, bob)
                tasks.start_soon(run, bob)
                tasks.start_soon(send, bob, ann.client_id)
                await arrived.wait()
    assert sorted(ended) == ["messages", "run_forever", "send"]


async def test_a_client_that_is_not_open_says_so(client: MakeClient) -> None:
    ann = client("ann")
    with pytest.raises(BusUnreachable, match="is not connected: nothing was sent"):
        await ann.send("bob", {})
    async with ann:
        pass
    with pytest.raises(BusUnreachable, match="is not connected: nothing was sent"):
        await ann.ping()


async def test_a_client_can_be_opened_again(client: MakeClient) -> None:
    ann = client("ann")
    ann.on()(lambda message: {"here": True})
    for _ in range(2):
        async with ann:
            assert (await ann.send(ann.client_id, {})).acks[0].read() == {"here": True}


# On trio the task that reads ends with the client, and its socket with it.
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
async def test_a_bus_that_does_not_hang_up_is_left_all_the_same(tmp_path: Path) -> None:
    outcome: list[type[Exception]] = []
    left = anyio.Event()

    async def script(line: ScriptedLine) -> None:
        await line.welcome()
        try:
            await line.read()
        except anyio.IncompleteRead:  # the client has said that it sends no more
            await left.wait()
        try:
            while True:
                await line.stream.send(bytes(65_536))
        except anyio.BrokenResourceError as problem:
            outcome.append(type(problem))

    async with open_scripted_bus(tmp_path / "bus.sock", script) as address:
        async with Client("ann", address=address, **PATIENT):
            pass
        left.set()
        with anyio.fail_after(PATIENCE_SECONDS):
            while not outcome:
                await anyio.lowlevel.checkpoint()
    assert outcome == [anyio.BrokenResourceError]


# In between


async def test_subscribe_and_unsubscribe_take_effect(client: MakeClient, suffix: str) -> None:
    async with client("ann") as ann, client("bob") as bob:
        bob.on()(lambda message: {"to": message.to})
        for pattern in (f"team:*{suffix}", f"a?c{suffix}"):
            to = pattern.replace("*", "red").replace("?", "b")
            await bob.subscribe(pattern)
            await bob.subscribe(pattern)  # again is the same
            assert (await ann.send(to, {})).acks[0].read() == {"to": to}
            await bob.unsubscribe(pattern)
            assert (await ann.send(to, {})).undelivered == "no route"


async def test_clients_of_the_same_name_both_receive(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as one, client("bob") as two:
        one.on()(lambda message: {"number": 1})
        two.on()(lambda message: {"number": 2})
        receipt = await ann.send(one.client_id, {})
        assert sorted(ack.read()["number"] for ack in receipt.acks) == [1, 2]
