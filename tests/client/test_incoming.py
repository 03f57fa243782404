"""Incoming messages: read one after the other, each answered exactly once."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import UNSET

from busd import Client, ConnectionLost, Incoming, Receipt, Refuse
from tests.client.conftest import PATIENT, MakeClient
from tests.client.scripted_bus import ScriptedLine, open_scripted_bus, process_message
from tests.daemons import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    pizza: str


async def test_messages_come_in_order_and_unanswered_ones_are_acked(
    client: MakeClient, address: str
) -> None:
    async with client("ann", address=address) as ann, client("bob", address=address) as bob:
        receipts: dict[int, Receipt] = {}

        async def send(number: int) -> None:
            receipts[number] = await ann.send(bob.client_id, {"number": number})

        seen: list[int] = []
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(send, number)
            async for message in bob.messages():
                seen.append(message.payload["number"])
                if len(seen) == 20:
                    await message.reply({"last": True})
                    break
        assert sorted(seen) == list(range(20))
        assert receipts[seen[-1]].acks[0].read() == {"last": True}
        assert all(receipts[number].acks[0].success for number in range(20))
        assert all(receipts[number].acks[0].read() == {} for number in seen[:-1])


async def test_messages_of_one_sender_come_in_the_order_sent(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        for number in range(50):
            await ann.post(bob.client_id, {"number": number})
        seen: list[int] = []
        async for message in bob.messages():
            seen.append(message.payload["number"])
            if len(seen) == 50:
                break
        assert seen == list(range(50))


async def test_reply_and_fail_are_what_the_sender_hears(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:

        async def answer() -> None:
            async for message in bob.messages():
                match message.type:
                    case "ok":
                        assert await message.reply({"type": "fine"})
                    case "no":
                        assert await message.fail("not now")
                    case "later":
                        assert await message.fail("not yet", retry_seconds=3)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            [ack] = (await ann.send(bob.client_id, {"type": "ok"})).acks
            assert (ack.success, ack.read()) == (True, {"type": "fine"})
            [ack] = (await ann.send(bob.client_id, {"type": "no"})).acks
            assert (ack.success, ack.message, ack.should_retry) == (False, "not now", UNSET)
            [ack] = (await ann.send(bob.client_id, {"type": "later"})).acks
            assert (ack.success, ack.message) == (False, "not yet")
            assert (ack.should_retry, ack.retry_seconds) == (True, 3)
            tasks.cancel_scope.cancel()


async def test_a_message_is_answered_once(client: MakeClient) -> None:
    async with client("bob") as bob:
        await bob.post(bob.client_id, {}, message_id="msg_1")
        async for message in bob.messages():
            assert not message.is_answered
            assert await message.reply()
            assert message.is_answered
            with pytest.raises(RuntimeError, match="msg_1 is answered already"):
                await message.fail("or is it?")
            break


async def test_a_message_says_who_sent_what_to_whom(client: MakeClient, suffix: str) -> None:
    async with client("bob") as bob:
        await bob.subscribe(f"team:*{suffix}")
        payload = {"type": "order", "pizza": "Napoli"}
        to = f"team:red{suffix}"
        await bob.post(to, payload, sender="tg:7", message_id="msg_1")
        async for message in bob.messages():
            assert (message.sender, message.to, message.message_id) == ("tg:7", to, "msg_1")
            assert (message.type, message.payload) == ("order", payload)
            assert bytes(message.raw) == b'{"type":"order","pizza":"Napoli"}'
            assert message.read(Order) == Order("Napoli")
            with pytest.raises(
                Refuse, match=r"payload: Expected `int`, got `str` - at `\$\[...\]`"
            ):
                message.read(dict[str, int])
            assert repr(message) == f"<Incoming msg_1 from tg:7 to {to}>"
            break


async def test_messages_gives_what_no_handler_takes(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:

        @bob.on("tea")
        def tea(message: Incoming) -> dict[str, str]:
            return {"by": "handler"}

        async def read() -> None:
            async for message in bob.messages():
                await message.reply({"by": "loop", "type": message.type})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()  # it is being read now
            for kind, answer in (
                ("tea", {"by": "handler"}),
                ("soup", {"by": "loop", "type": "soup"}),
            ):
                assert (await ann.send(bob.client_id, {"type": kind})).acks[0].read() == answer
            tasks.cancel_scope.cancel()


async def test_messages_that_came_before_anybody_asked_are_kept(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        await ann.post(bob.client_id, {"number": 1})
        await bob.ping()  # what came before its answer has arrived
        assert len(bob._inbox) == 1
        async for message in bob.messages():
            assert message.payload == {"number": 1}
            break


async def test_an_answer_to_a_line_that_is_gone_says_so(tmp_path: Path) -> None:
    """The message is read after the line it came over was lost; the new line knows it not."""
    came_back = anyio.Event()
    connections = 0

    async def script(line: ScriptedLine) -> None:
        nonlocal connections
        connections += 1
        await line.welcome()
        if connections == 1:
            await line.say(process_message(1, "bob", {"number": 1}))
            return
        came_back.set()
        assert (await line.read())["method"] == "ping"  # nothing was answered before
        await line.stream.aclose()

    async with (
        open_scripted_bus(tmp_path / "bus.sock", script) as address,
        Client("bob", address=address, **PATIENT) as bob,
    ):
        with anyio.fail_after(PATIENCE_SECONDS):
            await came_back.wait()
        message = await anext(bob.messages())
        assert message.payload == {"number": 1}
        assert await message.reply() is False
        with pytest.raises(ConnectionLost):
            await bob.ping()
