"""Handlers: which one gets a message, as what, and what its sender hears."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import pytest
from msgspec import UNSET, Raw

from busd import Ack, Client, Incoming, Refuse
from tests.client.conftest import MakeClient
from tests.client.scripted_bus import ScriptedLine, open_scripted_bus, process_message
from tests.daemons import PATIENCE_SECONDS

if TYPE_CHECKING:
    from typing import Any as OnlyForTypeCheckers

    import busd

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    pizza: str
    count: int = 1


class Served(msgspec.Struct):
    pizza: str


async def ack_of(bus: Client, payload: Any) -> Ack:
    """Send a message to oneself and give the one ack."""
    [ack] = (await bus.send(bus.client_id, payload)).acks
    return ack


async def test_a_message_that_comes_before_its_handler_is_answered_by_it(tmp_path: Path) -> None:
    answers: list[Any] = []
    is_over = anyio.Event()

    async def script(line: ScriptedLine) -> None:
        hello = await line.read()
        welcome = {"jsonrpc": "2.0", "id": hello["id"], "result": {"serverId": "bus-scripted"}}
        early = [process_message(n, "ann", {"type": kind}) for n, kind in ((1, "tea"), (2, "soup"))]
        await line.say(welcome, *early)  # all in one chunk
        answers.extend([await line.read(), await line.read()])
        is_over.set()
        await line.listen_forever()

    with anyio.fail_after(PATIENCE_SECONDS):
        async with (
            open_scripted_bus(tmp_path / "bus.sock", script) as address,
            Client("ann", address=address) as ann,
            anyio.create_task_group() as tasks,
        ):

            @ann.on("cake")
            def cake(message: Incoming) -> None:
                raise AssertionError("there was none")

            @ann.on("tea")
            def tea(message: Incoming) -> dict[str, str]:
                return {"by": "tea"}

            tasks.start_soon(ann.run_forever)
            await is_over.wait()
            tasks.cancel_scope.cancel()
    by_id = {answer["id"]: answer["result"] for answer in answers}
    assert (by_id[1]["success"], by_id[1]["payload"]) == (True, {"by": "tea"})
    assert (by_id[2]["success"], by_id[2]["message"]) == (False, "no handler for type 'soup'")


async def test_each_type_has_its_handler_and_the_rest_has_one(client: MakeClient) -> None:
    async with client("bob") as bob:

        @bob.on("tea")
        async def tea(message: Incoming) -> dict[str, str]:
            return {"by": "tea"}

        @bob.on("cake")
        def cake(message: Incoming) -> dict[str, str]:
            return {"by": "cake"}

        @bob.on()
        def rest(message: Incoming) -> dict[str, str]:
            return {"by": "rest", "type": message.type}

        assert (await ack_of(bob, {"type": "tea"})).read() == {"by": "tea"}
        assert (await ack_of(bob, {"type": "cake"})).read() == {"by": "cake"}
        assert (await ack_of(bob, {"type": "soup"})).read() == {"by": "rest", "type": "soup"}
        for odd in ({}, {"type": 7}, {"type": None}, Raw(b'{"type":"tea","type":[]}')):
            assert (await ack_of(bob, odd)).read() == {"by": "rest", "type": ""}


async def test_a_struct_gets_the_payload_checked(client: MakeClient) -> None:
    async with client("bob") as bob:

        @bob.on("order")
        async def take(order: Order) -> Served:
            assert isinstance(order, Order)
            return Served(pizza=f"{order.count} {order.pizza}")

        order = {"type": "order", "pizza": "Napoli", "count": 2, "more": "is ignored"}
        assert (await ack_of(bob, order)).read(Served) == Served("2 Napoli")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"pizza": "Napoli", "count": "two"}, "Expected `int`, got `str` - at `$.count`"),
        ({"count": 2}, "Object missing required field `pizza`"),
    ],
)
async def test_a_payload_that_does_not_fit_is_refused_naming_the_member(
    client: MakeClient, payload: Any, reason: str
) -> None:
    async with client("bob") as bob:

        @bob.on()
        async def take(order: Order) -> None:
            raise AssertionError("never reached")

        ack = await ack_of(bob, payload)
        assert (ack.success, ack.message) == (False, f"payload: {reason}")
        assert ack.should_retry is UNSET


async def test_the_annotation_says_what_a_handler_gets(client: MakeClient) -> None:
    seen: list[Any] = []

    def by_dict(payload: dict[str, Any]) -> None:
        seen.append(payload)

    def by_bare_dict(payload: dict) -> None:  # type: ignore[type-arg] # as users write it
        seen.append(payload)

    def by_raw(payload: Raw) -> None:
        seen.append(bytes(payload))

    def by_message(message: Incoming) -> None:
        seen.append((message.sender, message.payload))

    def by_nothing(message) -> None:  # type: ignore[no-untyped-def] # as users write it
        seen.append((message.sender, message.payload))

    async with client("bob") as bob:
        handlers: list[Callable[[Any], None]] = [by_dict, by_bare_dict, by_raw, by_message]
        for number, handler in enumerate([*handlers, by_nothing]):
            bob.on(str(number))(handler)
        for number in range(5):
            assert (await ack_of(bob, {"type": str(number)})).success
        assert seen == [
            {"type": "0"},
            {"type": "1"},
            b'{"type":"2"}',
            (bob.client_id, {"type": "3"}),
            (bob.client_id, {"type": "4"}),
        ]


@pytest.mark.parametrize(
    ("answer", "payload"),
    [
        (None, b"{}"),
        ({"a": 1}, b'{"a":1}'),
        (Served("Napoli"), b'{"pizza":"Napoli"}'),
        (Raw(b'{ "n": 1e400 }'), b'{ "n": 1e400 }'),
        (Ack(True, payload=Raw(b'{"b":2}')), b'{"b":2}'),
    ],
    ids=["nothing", "dict", "struct", "raw bytes", "a whole ack"],
)
async def test_what_a_handler_returns_is_the_payload_of_its_ack(
    client: MakeClient, answer: Any, payload: bytes
) -> None:
    async with client("bob") as bob:
        bob.on()(lambda message: answer)
        ack = await ack_of(bob, {})
        assert (ack.success, ack.message, bytes(ack.payload)) == (True, "", payload)


async def test_refuse_is_a_failed_ack_that_says_why_and_when_to_retry(client: MakeClient) -> None:
    async with client("bob") as bob:

        @bob.on("never")
        async def never(message: Incoming) -> None:
            raise Refuse("no pizza today")

        @bob.on("later")
        def later(message: Incoming) -> None:
            raise Refuse("oven is cold", retry_seconds=2.5)

        ack = await ack_of(bob, {"type": "never"})
        assert (ack.success, ack.message) == (False, "no pizza today")
        assert (ack.should_retry, ack.retry_seconds) == (UNSET, UNSET)
        ack = await ack_of(bob, {"type": "later"})
        assert (ack.success, ack.message) == (False, "oven is cold")
        assert (ack.should_retry, ack.retry_seconds) == (True, 2.5)


async def test_an_exception_is_a_failed_ack_that_gives_nothing_away(
    client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with client("bob") as bob:

        @bob.on()
        async def fail(message: Incoming) -> None:
            raise ValueError("the password is 1234")

        ack = await ack_of(bob, {})
        assert (ack.success, ack.message, ack.read()) == (False, "handler failed: ValueError", {})
        assert ack.should_retry is UNSET
        assert "the password is 1234" in caplog.text  # we ourselves want to know
        assert (await ack_of(bob, {})).message == "handler failed: ValueError"  # and it lives on


async def test_an_answer_that_is_no_object_is_a_failed_ack(
    client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with client("bob") as bob:
        bob.on()(lambda message: "just text")
        ack = await ack_of(bob, {})
        assert (ack.success, ack.message) == (False, "handler failed: TypeError")
        assert "a payload is an object (dict or struct), not str" in caplog.text


async def test_a_type_without_a_handler_is_a_failed_ack(client: MakeClient) -> None:
    async with client("bob") as bob:
        bob.on("tea")(lambda message: None)
        ack = await ack_of(bob, {"type": "soup"})
        assert (ack.success, ack.message) == (False, "no handler for type 'soup'")


async def test_a_handler_that_answered_itself_is_not_answered_for(client: MakeClient) -> None:
    async with client("bob") as bob:

        @bob.on()
        async def answer(message: Incoming) -> dict[str, str]:
            await message.fail("changed my mind", retry_seconds=1)
            return {"this": "is too late"}

        ack = await ack_of(bob, {})
        assert (ack.success, ack.message, ack.read()) == (False, "changed my mind", {})
        assert (await ack_of(bob, {})).message == "changed my mind"


async def test_handlers_that_wait_for_each_other_both_answer(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        here = {"a": anyio.Event(), "b": anyio.Event()}

        @bob.on()
        async def meet(payload: dict[str, str]) -> None:
            here[payload["me"]].set()
            await here[payload["other"]].wait()

        async def send(me: str, other: str) -> None:
            receipt = await ann.send(bob.client_id, {"me": me, "other": other})
            assert receipt.acks[0].success

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, "a", "b")
            tasks.start_soon(send, "b", "a")


async def test_no_more_handlers_run_at_once_than_allowed(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob", concurrency=3) as bob:
        running: list[int] = []
        most = 0

        @bob.on()
        async def work(payload: dict[str, int]) -> None:
            nonlocal most
            running.append(payload["number"])
            most = max(most, len(running))
            await bob.ping()  # long enough for everybody else to come along
            running.remove(payload["number"])

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(ann.send, bob.client_id, {"number": number})
        assert most == 3
        assert running == []


async def test_a_handler_that_never_waits_sees_messages_in_order(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        seen: list[int] = []

        @bob.on()
        async def note(payload: dict[str, int]) -> None:
            seen.append(payload["number"])

        for number in range(99):
            await ann.post(bob.client_id, {"number": number})
        await ann.send(bob.client_id, {"number": 99})
        assert seen == list(range(100))


async def test_a_handler_may_send_to_others_and_to_itself(client: MakeClient) -> None:
    async with client("waiter") as waiter, client("cook") as cook:

        @waiter.on("order")
        async def take(message: Incoming) -> dict[str, Any]:
            baked = await waiter.send(cook.client_id, {"type": "bake"})
            told = await waiter.send(waiter.client_id, {"type": "told"})
            return {"baked": baked.acks[0].read(), "told": told.acks[0].read()}

        @waiter.on("told")
        async def hear(message: Incoming) -> dict[str, str]:
            return {"from": message.sender}

        @cook.on("bake")
        async def bake(message: Incoming) -> dict[str, str]:
            asked = await cook.send(message.sender, {"type": "told"})
            return asked.acks[0].read()

        assert (await ack_of(waiter, {"type": "order"})).read() == {
            "baked": {"from": cook.client_id},
            "told": {"from": waiter.client_id},
        }


async def test_handlers_may_be_registered_before_the_line_is_open(client: MakeClient) -> None:
    bob = client("bob")
    bob.on("early")(lambda message: {"bird": True})
    async with bob:
        assert (await ack_of(bob, {"type": "early"})).read() == {"bird": True}


async def test_a_handler_that_is_still_at_work_ends_with_its_client(client: MakeClient) -> None:
    async with client("ann") as ann:
        started, ended = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            async with client("bob") as bob:

                @bob.on()
                async def work(message: Incoming) -> None:
                    started.set()
                    try:
                        await anyio.sleep_forever()
                    finally:
                        ended.set()

                async def send() -> None:
                    [ack] = (await ann.send(bob.client_id, {})).acks
                    assert (ack.success, ack.message) == (False, "peer left before it answered")

                tasks.start_soon(send)
                with anyio.fail_after(PATIENCE_SECONDS):
                    await started.wait()
            assert ended.is_set()


def test_a_type_has_one_handler(unix: str) -> None:
    bob = Client("bob", address=unix)
    bob.on("tea")(lambda message: None)
    with pytest.raises(ValueError, match="there is a handler for 'tea' already"):
        bob.on("tea")(lambda message: None)
    bob.on()(lambda message: None)
    with pytest.raises(ValueError, match="there is a handler for 'every type' already"):
        bob.on()(lambda message: None)


def test_a_handler_without_an_argument_is_a_mistake_that_is_told_at_once(unix: str) -> None:
    deaf: Any = lambda: None  # noqa: E731 - mypy would know better
    with pytest.raises(TypeError, match="a handler takes one argument"):
        Client("bob", address=unix).on()(deaf)


def test_what_a_handler_gets_must_be_known_but_nothing_else(unix: str) -> None:
    bob = Client("bob", address=unix)

    def by_type_checkers(message: OnlyForTypeCheckers) -> None: ...
    def to_type_checkers(order: Order) -> OnlyForTypeCheckers: ...
    def by_message(message: busd.Incoming) -> None: ...

    with pytest.raises(TypeError, match="'OnlyForTypeCheckers' is not known where"):
        bob.on("a")(by_type_checkers)
    bob.on("b")(to_type_checkers)
    bob.on("c")(by_message)


def test_registering_gives_the_function_back(unix: str) -> None:
    def answer(message: Incoming) -> None: ...

    assert Client("bob", address=unix).on()(answer) is answer


def test_the_library_logs_to_the_loggers_of_its_users() -> None:
    assert logging.getLogger("busd.client").handlers == []
