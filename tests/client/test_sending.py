"""Sending: what goes out, what comes back, and what is raised instead."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from msgspec import UNSET, Raw

from busd import CallRefused, Client, Incoming, NoAnswer, __version__
from tests.client.conftest import MakeClient, address_of
from tests.conftest import DaemonWith
from tests.daemons import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


class Greeting(msgspec.Struct):
    text: str
    type: str = "greeting"


def echo(bus: Client) -> None:
    """Have a client answer every message with what it got."""

    @bus.on()
    def answer(message: Incoming) -> dict[str, Any]:
        return {
            "from": message.sender,
            "to": message.to,
            "id": message.message_id,
            "payload": message.payload,
        }


async def test_a_send_gives_the_answer_of_its_addressee(client: MakeClient, address: str) -> None:
    async with client("ann", address=address) as ann, client("bob", address=address) as bob:
        echo(bob)
        receipt = await ann.send(bob.client_id, {"type": "hi"})
        [ack] = receipt.acks
        assert (receipt.accepted, receipt.undelivered) == (True, UNSET)
        assert (ack.success, ack.client_id) == (True, bob.client_id)
        assert ack.read() == {
            "from": ann.client_id,
            "to": bob.client_id,
            "id": receipt.message_id,
            "payload": {"type": "hi"},
        }


async def test_a_send_to_many_gives_an_ack_of_each_and_none_hides_another(
    client: MakeClient, suffix: str
) -> None:
    async with client("ann") as ann, client("bob") as bob, client("cat") as cat:
        echo(bob)

        @cat.on()
        def fail(message: Incoming) -> None:
            raise RuntimeError

        for each in (bob, cat):
            await each.subscribe(f"all{suffix}")
        receipt = await ann.send(f"all{suffix}", {})
        outcomes = {ack.client_id: ack.success for ack in receipt.acks}
        assert outcomes == {bob.client_id: True, cat.client_id: False}


async def test_a_message_for_nobody_is_told_so(client: MakeClient, suffix: str) -> None:
    async with client("ann") as ann:
        receipt = await ann.send(f"nobody{suffix}", {})
        assert (receipt.accepted, receipt.acks, receipt.undelivered) == (True, [], "no route")


async def test_from_is_the_peers_own_name_unless_another_is_given(
    client: MakeClient, suffix: str
) -> None:
    async with client("ann") as ann, client("bob") as bob:
        echo(bob)
        for sender, expected in ((None, ann.client_id), (f"tg:7{suffix}", f"tg:7{suffix}")):
            sent = await ann.send(bob.client_id, {}, sender=sender)
            assert sent.acks[0].read()["from"] == expected


async def test_a_message_keeps_the_id_it_was_given_and_else_gets_one(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        echo(bob)
        given = await ann.send(bob.client_id, {}, message_id="msg_mine")
        made = await ann.send(bob.client_id, {})
        assert given.message_id == given.acks[0].read()["id"] == "msg_mine"
        assert made.message_id == made.acks[0].read()["id"]
        assert made.message_id.startswith("msg_")


@pytest.mark.parametrize(
    ("payload", "arrives"),
    [
        ({"a": [1, {"b": None}]}, b'{"a":[1,{"b":null}]}'),
        (Greeting("hi"), b'{"text":"hi","type":"greeting"}'),
        (None, b"{}"),
        (Raw(b'{ "n":1e400, "n":-0, "t":"\\u00e9" }'), b'{ "n":1e400, "n":-0, "t":"\\u00e9" }'),
    ],
    ids=["dict", "struct", "nothing", "raw bytes"],
)
async def test_a_payload_is_an_object_struct_or_bytes_and_arrives_as_it_is(
    client: MakeClient, payload: Any, arrives: bytes
) -> None:
    async with client("ann") as ann, client("bob") as bob:
        seen: list[bytes] = []

        @bob.on()
        def note(raw: Raw) -> None:
            seen.append(bytes(raw))

        assert (await ann.send(bob.client_id, payload)).acks[0].success
        assert seen == [arrives]


@pytest.mark.parametrize(
    "payload", ["text", 17, [1], True, Raw(b"[1]"), Raw(b'{"a":'), Raw(b'{"a":"\xff"}'), Raw(b"")]
)
async def test_a_payload_that_is_no_object_is_a_mistake_of_the_caller(
    client: MakeClient, payload: Any
) -> None:
    async with client("ann") as ann:
        for give in (ann.send, ann.post):
            with pytest.raises(TypeError, match="a payload is"):
                await give(ann.client_id, payload)


async def test_bytes_of_several_lines_are_still_one_message(
    client: MakeClient, address: str
) -> None:
    async with client("ann", address=address) as ann, client("bob") as bob:

        @bob.on()
        def pretty(payload: dict[str, Any]) -> Raw:
            return Raw(msgspec.json.format(msgspec.json.encode({"got": payload})))

        sent = await ann.send(bob.client_id, Raw(b'{\n  "a": 1\r\n}'))
        assert sent.acks[0].read() == {"got": {"a": 1}}


async def test_a_large_payload_arrives_whole(client: MakeClient, address: str) -> None:
    async with client("ann", address=address) as ann, client("bob", address=address) as bob:
        echo(bob)
        text = "é" * 400_000
        sent = await ann.send(bob.client_id, {"text": text})
        assert sent.acks[0].read()["payload"] == {"text": text}


async def test_what_is_too_large_for_the_bus_is_refused_without_losing_the_line(
    client: MakeClient, address: str
) -> None:
    async with client("ann", address=address) as ann, client("bob", address=address) as bob:
        lines = (ann.caller.line, bob.caller.line)
        large = {"text": "x" * 1024 * 1024}
        bob.on("much")(lambda message: large)
        for give in (ann.send, ann.post):
            with pytest.raises(CallRefused, match="frame over 1048576 bytes") as refused:
                await give(bob.client_id, large)
            assert refused.value.code == -32600
            assert refused.value.data == {"rule": "max_frame_bytes"}
        [ack] = (await ann.send(bob.client_id, {"type": "much"})).acks
        assert (ack.success, ack.message) == (False, "the answer is a frame over 1048576 bytes")
        assert (ann.caller.line, bob.caller.line) == lines


async def test_many_sends_at_once_each_get_their_own_answer(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        echo(bob)
        answers: dict[int, Any] = {}

        async def send(number: int) -> None:
            sent = await ann.send(bob.client_id, {"number": number})
            answers[number] = sent.acks[0].read()["payload"]["number"]

        async with anyio.create_task_group() as tasks:
            for number in range(300):
                tasks.start_soon(send, number)
        assert answers == {number: number for number in range(300)}


async def test_post_does_not_wait_for_the_addressee(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        may_answer, answered = anyio.Event(), anyio.Event()

        @bob.on()
        async def think(message: Incoming) -> None:
            await may_answer.wait()
            answered.set()

        posted = await ann.post(bob.client_id, {}, message_id="msg_posted")
        assert (posted.accepted, posted.message_id, posted.acks) == (True, "msg_posted", [])
        assert posted.undelivered is UNSET
        assert not answered.is_set()
        may_answer.set()
        with anyio.fail_after(PATIENCE_SECONDS):
            await answered.wait()
        assert await ann.ping()  # the ack that came late bothers nobody


async def test_post_says_that_nobody_gets_the_message(client: MakeClient, suffix: str) -> None:
    async with client("ann") as ann:
        assert (await ann.post(f"nobody{suffix}", {})).undelivered == "no route"


async def test_a_message_that_the_bus_refuses_raises(client: MakeClient) -> None:
    async with client("ann") as ann:
        for give in (ann.send, ann.post):
            with pytest.raises(CallRefused, match="malformed address") as refused:
                await give("not an address", {}, sender="not an address")
            assert refused.value.code == -32602
            assert refused.value.data == {"rule": "address", "address": "not an address"}
        assert await ann.ping()


async def test_a_strict_bus_lets_nobody_speak_as_another(
    daemon_with: DaemonWith, suffix: str
) -> None:
    daemon = daemon_with({"policy": "strict"})
    async with Client("owner", address=address_of(daemon, "unix")) as owner:
        made = await owner.call("bus.newToken", {"name": f"plain{suffix}"})
    address = address_of(daemon, "tcp").replace("//", f"//:{made['token']}@")
    async with Client("ann", address=address, timeout_seconds=PATIENCE_SECONDS) as ann:
        for give in (ann.send, ann.post):
            with pytest.raises(CallRefused, match="ann may not speak as bob") as refused:
                await give("ann", {}, sender="bob")
            assert isinstance(refused.value.data, dict)
            assert refused.value.data["rule"] == f"grant.token plain{suffix}.speak_as"


async def test_an_addressee_that_thinks_too_long_is_not_waited_for(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        may_answer = anyio.Event()

        @bob.on("slow")
        async def think(message: Incoming) -> None:
            await may_answer.wait()

        @bob.on("quick")
        def answer(message: Incoming) -> None: ...

        with pytest.raises(NoAnswer, match=f"message to {bob.client_id}"):
            await ann.send(bob.client_id, {"type": "slow"}, timeout_seconds=0.05)
        may_answer.set()  # its late ack is nobody's
        assert (await ann.send(bob.client_id, {"type": "quick"})).acks[0].success
        assert ann.caller.line is not None
        assert ann.caller.line.calls == {}


async def test_a_cancelled_send_leaves_nothing_behind(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        arrived = anyio.Event()

        @bob.on()
        async def think(message: Incoming) -> None:
            arrived.set()
            await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ann.send, bob.client_id, {})
            tasks.start_soon(ann.call, "sendMessage", {"to": bob.client_id, "payload": {}})
            with anyio.fail_after(PATIENCE_SECONDS):
                await arrived.wait()
            tasks.cancel_scope.cancel()
        assert ann.caller.line is not None
        assert ann.caller.line.calls == {}
        assert await ann.ping()


async def test_any_method_of_the_bus_can_be_called(client: MakeClient) -> None:
    async with client("ann", info={"skills": ["pizza"]}) as ann:
        assert (await ann.call("ping")).keys() == {"timestamp"}
        assert (await ann.ping()).endswith("Z")
        with pytest.raises(CallRefused) as refused:
            await ann.call("noSuchMethod", {"a": 1})
        assert refused.value.code == -32601
        [me] = [
            each
            for each in (await ann.status())["connections"]
            if each["clientId"] == ann.client_id
        ]
        assert me["subscriptions"] == [ann.client_id]
        own = {"name": "busd client", "version": __version__}
        assert me["clientInfo"] == {**own, "skills": ["pizza"]}
