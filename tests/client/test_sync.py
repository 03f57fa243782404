"""`SyncClient`: the same names, for programs without a loop."""

from __future__ import annotations

import inspect
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from busd import (
    BusUnreachable,
    CallRefused,
    Client,
    ConnectionLost,
    Incoming,
    NoAnswer,
    Refuse,
    SyncClient,
)
from busd.client.sync import SyncIncoming
from tests.client.conftest import PATIENT
from tests.client.restarts import Restartable
from tests.daemons import PATIENCE_SECONDS

# Ours, though others of our files must see it.
INTERNAL = {"answer_nowait", "hand_out"}

Join = Callable[[str], SyncClient]


class Order(msgspec.Struct):
    pizza: str


@pytest.fixture
def join(unix: str, suffix: str, opened: ExitStack) -> Join:
    """Open clients that are closed after the test."""

    def join_as(name: str) -> SyncClient:
        return opened.enter_context(SyncClient(name + suffix, address=unix, **PATIENT))

    return join_as


def public_parts(kind: type) -> dict[str, object]:
    return {
        name: part
        for name, part in vars(kind).items()
        if not name.startswith("_") and name not in INTERNAL
    }


def parameters_of(function: object) -> list[tuple[str, object, object, object]]:
    assert callable(function)
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default, each.annotation) for each in found]


@pytest.mark.parametrize(("kind", "sync"), [(Client, SyncClient), (Incoming, SyncIncoming)])
def test_both_kinds_have_the_same_methods_with_the_same_parameters(kind: type, sync: type) -> None:
    for name, part in public_parts(kind).items():
        if inspect.isfunction(part):
            assert parameters_of(getattr(sync, name)) == parameters_of(part), name
    wanted = {name for name, part in public_parts(sync).items() if inspect.isfunction(part)}
    assert wanted <= public_parts(kind).keys()


def test_both_clients_take_the_same_options() -> None:
    assert parameters_of(SyncClient.__init__) == parameters_of(Client.__init__)


def test_both_clients_and_messages_have_the_same_attributes(join: Join) -> None:
    bob = join("bob")
    assert bob.client_id == bob._client.client_id
    assert bob.address == bob._client.address
    bob.post(bob.client_id, {"type": "order", "pizza": "Napoli"}, sender="tg:7", message_id="m1")
    for message in bob.messages():
        assert (message.sender, message.to, message.message_id) == ("tg:7", bob.client_id, "m1")
        assert message.payload == {"type": "order", "pizza": "Napoli"}
        assert bytes(message.raw) == b'{"type":"order","pizza":"Napoli"}'
        assert (message.type, message.read(Order)) == ("order", Order("Napoli"))
        assert repr(message) == f"<Incoming m1 from tg:7 to {bob.client_id}>"
        assert not message.is_answered
        assert message.reply()
        assert message.is_answered
        break


def test_a_send_gives_the_answer_of_a_handler_in_a_thread(join: Join) -> None:
    ann, bob = join("ann"), join("bob")
    threads: set[str] = set()

    @bob.on("order")
    def take(order: Order) -> dict[str, str]:
        threads.add(threading.current_thread().name)
        return {"baked": order.pizza}

    @bob.on("no")
    def refuse(message: SyncIncoming) -> None:
        raise Refuse("not today", retry_seconds=2)

    @bob.on("oops")
    def fail(payload: dict[str, Any]) -> None:
        raise ValueError("the password is 1234")

    [ack] = ann.send(bob.client_id, {"type": "order", "pizza": "Napoli"}).acks
    assert (ack.success, ack.read()) == (True, {"baked": "Napoli"})
    [ack] = ann.send(bob.client_id, {"type": "order"}).acks
    assert (ack.success, ack.message) == (
        False,
        "payload: Object missing required field `pizza`",
    )
    [ack] = ann.send(bob.client_id, {"type": "no"}).acks
    assert (ack.success, ack.message, ack.retry_seconds) == (False, "not today", 2)
    [ack] = ann.send(bob.client_id, {"type": "oops"}).acks
    assert (ack.success, ack.message) == (False, "handler failed: ValueError")
    assert threading.current_thread().name not in threads


def test_an_async_handler_is_a_mistake_that_is_told_at_once(unix: str) -> None:
    async def answer(message: SyncIncoming) -> None: ...

    with pytest.raises(TypeError, match="a plain function, not an async one"):
        SyncClient("bob", address=unix).on()(answer)


def test_a_message_that_comes_before_its_handler_is_answered_by_it(join: Join) -> None:
    ann, bob = join("ann"), join("bob")
    ann.post(bob.client_id, {"type": "tea"})
    bob.ping()  # answered behind the message, which is here now
    taken = threading.Event()
    bob.on("tea")(lambda message: taken.set())
    assert taken.wait(PATIENCE_SECONDS)


def test_handlers_may_wait_for_each_other_and_send(join: Join) -> None:
    ann, bob = join("ann"), join("bob")
    both_are_here = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    @bob.on()
    def meet(message: SyncIncoming) -> dict[str, Any]:
        both_are_here.wait()
        return bob.send(message.sender, {"from": message.message_id}).acks[0].read()

    @ann.on()
    def echo(payload: dict[str, Any]) -> dict[str, Any]:
        return payload

    with ThreadPoolExecutor(2) as pool:
        sent = [
            pool.submit(ann.send, bob.client_id, {}, message_id=message_id)
            for message_id in ("one", "two")
        ]
        answers: list[Any] = [future.result(PATIENCE_SECONDS).acks[0].read() for future in sent]
    assert answers == [{"from": "one"}, {"from": "two"}]


def test_several_threads_may_use_one_client(join: Join) -> None:
    ann, bob = join("ann"), join("bob")
    bob.on()(lambda message: message.payload)

    def send(number: int) -> int:
        answer: int = ann.send(bob.client_id, {"number": number}).acks[0].read()["number"]
        return answer

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(send, range(160))) == list(range(160))


def test_several_threads_may_read_messages(join: Join) -> None:
    """Each message goes to one of them, even to one that fell asleep before the other."""
    ann, bob = join("ann"), join("bob")
    both_have_one = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def read_one() -> int:
        for message in bob.messages():
            both_have_one.wait()
            message.reply()
            return int(message.payload["number"])
        raise AssertionError("never reached")

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read_one) for _ in range(2)]
        for number in range(2):
            pool.submit(ann.send, bob.client_id, {"number": number})
        assert sorted(each.result(PATIENCE_SECONDS) for each in readers) == [0, 1]


def test_messages_come_in_order_and_unanswered_ones_are_acked(join: Join) -> None:
    ann, bob = join("ann"), join("bob")

    def send_all() -> list[Any]:
        return [ann.send(bob.client_id, {"number": n}).acks[0] for n in range(5)]

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send_all)
        for expected, message in enumerate(bob.messages()):
            assert message.payload == {"number": expected}
            if expected == 3:
                message.fail("odd one out", retry_seconds=1)
            if expected == 4:
                message.reply({"last": True})
                break
        acks = sent.result(PATIENCE_SECONDS)
    assert [ack.success for ack in acks] == [True, True, True, False, True]
    assert [ack.read() for ack in acks] == [{}, {}, {}, {}, {"last": True}]


def test_post_call_ping_status_subscribe_and_unsubscribe_do_what_they_say(
    join: Join, suffix: str
) -> None:
    ann = join("ann")
    assert ann.post(f"nobody{suffix}", {}).undelivered == "no route"
    assert ann.call("ping").keys() == {"timestamp"}
    assert ann.ping().endswith("Z")
    ann.subscribe(f"team:*{suffix}")
    [me] = [each for each in ann.status()["connections"] if each["clientId"] == ann.client_id]
    assert me["subscriptions"] == sorted([ann.client_id, f"team:*{suffix}"])
    ann.unsubscribe(f"team:*{suffix}")
    assert ann.send(f"team:red{suffix}", {}).undelivered == "no route"


def test_errors_are_the_same_and_plain(join: Join, tmp_path: Path) -> None:
    ann = join("ann")
    with pytest.raises(CallRefused) as refused:
        ann.send("not an address", {})
    assert refused.value.code == -32602
    with pytest.raises(NoAnswer):
        ann.send(ann.client_id, {}, timeout_seconds=0.01)  # nobody reads its messages
    with pytest.raises(TypeError, match="a payload is an object"):
        ann.send(ann.client_id, "text")
    with (
        pytest.raises(BusUnreachable, match=r'no bus at .*; start one with "busd serve"'),
        SyncClient("bob", address=f"unix:{tmp_path / 'none'}"),
    ):
        raise AssertionError("never reached")


def test_what_the_body_raises_comes_out_as_it_is(unix: str) -> None:
    with pytest.raises(ZeroDivisionError), SyncClient("ann", address=unix):
        raise ZeroDivisionError


def test_a_send_in_flight_says_that_it_may_have_been_delivered_and_the_next_one_waits(
    tmp_path: Path,
) -> None:
    bus = Restartable(tmp_path)
    try:
        with SyncClient("ann", address=bus.address(), **PATIENT) as ann:
            arrived, may_go = threading.Event(), threading.Event()

            @ann.on()
            def think(message: SyncIncoming) -> None:
                arrived.set()
                may_go.wait(PATIENCE_SECONDS)

            with ThreadPoolExecutor(1) as pool:
                sent = pool.submit(ann.send, "ann", {})
                assert arrived.wait(PATIENCE_SECONDS)
                bus.kill()
                with pytest.raises(ConnectionLost) as lost:
                    sent.result(PATIENCE_SECONDS)
                assert lost.value.maybe_delivered
                may_go.set()
                sent = pool.submit(ann.send, "ann", {})
                bus.start_now()
                assert sent.result(PATIENCE_SECONDS).acks[0].success
    finally:
        bus.end()


def test_a_program_hears_that_the_line_is_lost_and_open_again(tmp_path: Path) -> None:
    bus = Restartable(tmp_path)
    heard: queue.Queue[bool] = queue.Queue()
    try:
        with SyncClient("ann", address=bus.address(), **PATIENT) as ann:
            ann.on_line(heard.put)
            bus.kill()
            assert heard.get(timeout=PATIENCE_SECONDS) is False
            bus.start_now()
            assert heard.get(timeout=PATIENCE_SECONDS) is True
        assert heard.empty()
    finally:
        bus.end()


def test_a_thread_that_reads_messages_ends_with_the_client(unix: str, suffix: str) -> None:
    is_reading = threading.Event()

    def read(ann: SyncClient) -> str:
        for message in ann.messages():
            message.reply()
            is_reading.set()
        return "ended"

    with ThreadPoolExecutor(1) as pool:
        with SyncClient(f"ann{suffix}", address=unix, **PATIENT) as ann:
            reader = pool.submit(read, ann)
            ann.send(ann.client_id, {})
            assert is_reading.wait(PATIENCE_SECONDS)
        assert reader.result(PATIENCE_SECONDS) == "ended"


@pytest.fixture
def nobody() -> Iterator[str]:
    """The address of somebody who listens and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


PROGRAM = """
import sys
from busd import SyncClient

with SyncClient("ann" + sys.argv[2], address=sys.argv[1]) as bus:
    @bus.on("think")
    def think(message):
        print("ready", flush=True)
        bus.send(message.sender, {"type": "unread"})

    {body}
"""


@pytest.mark.parametrize(
    "body",
    [
        'bus.post(bus.client_id, {"type": "think"}); [None for _ in bus.messages()]',
        'bus.post(bus.client_id, {"type": "think"}); bus.run_forever()',
        'bus.on("unread")(lambda message: bus.run_forever()); '
        'bus.send(bus.client_id, {"type": "think"})',
        'print("ready", flush=True); bus.run_forever()',
    ],
    ids=["messages", "run_forever", "send", "run_forever at once"],
)
def test_ctrl_c_ends_a_program_wherever_it_waits(unix: str, suffix: str, body: str) -> None:
    program = PROGRAM.replace("{body}", body)
    with subprocess.Popen(
        [sys.executable, "-c", program, unix, suffix],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT, said
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert "ExceptionGroup" not in said


def test_a_bus_that_never_answers_is_not_waited_for(nobody: str) -> None:
    with (
        pytest.raises(NoAnswer, match="did not answer in time"),
        SyncClient("ann", address=nobody, timeout_seconds=0.05),
    ):
        raise AssertionError("never reached")
