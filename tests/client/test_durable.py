"""Durable sends: what becomes of them while their addressee, or the bus itself, is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from busd import BusUnreachable, CallRefused, Client, ConnectionLost, Incoming, NoAnswer
from busd.bus.mail_state import MailState
from tests.client.conftest import PATIENT, MakeClient
from tests.client.restarts import Restartable
from tests.client.scripted_bus import Json, ScriptedLine, open_scripted_bus, process_message
from tests.daemons import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

WITH_MAIL = {
    "serverId": "bus-scripted",
    "capabilities": {"extensions": {"mail": True, "causedBy": True}},
}
STOPPING = {"rule": "busy", "retrySeconds": 0.01}


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Restartable]:
    """A daemon that this test may kill."""
    restartable = Restartable(tmp_path)
    yield restartable
    restartable.end()


async def test_a_durable_message_for_an_absent_addressee_is_kept_and_delivered_later(
    client: MakeClient,
) -> None:
    async with client("ann") as ann:
        bob = client("bob")
        assert ann.keeps_mail
        for number, give in enumerate((ann.send, ann.post)):
            receipt = await give(bob.client_id, {"number": number}, durable=True)
            assert (receipt.undelivered, receipt.acks, receipt.is_kept) == ("kept", [], True)
            assert receipt.mail is not UNSET
            assert (receipt.mail.state, receipt.is_duplicate) == (MailState.KEPT, False)
        async with bob:
            messages = bob.messages()
            for number in range(2):
                with anyio.fail_after(PATIENCE_SECONDS):
                    message = await anext(messages)
                assert message.payload == {"number": number}
                assert (message.delivery_attempt, message.is_redelivery) == (1, False)
                await message.reply()


@pytest.mark.parametrize("options", [{"durable": True}, {"idempotency_key": "k"}])
async def test_a_durable_message_for_somebody_present_gives_the_acks(
    client: MakeClient, options: dict[str, Any]
) -> None:
    async with client("ann") as ann, client("bob") as bob:
        bob.on()(lambda message: {"id": message.message_id})
        for give in (ann.send, ann.post):
            receipt = await give(bob.client_id, {"to": give.__name__}, **_unique(options, give))
            assert receipt.acks[0].read() == {"id": receipt.message_id}
            assert (receipt.undelivered, receipt.is_kept) == (UNSET, False)
            assert receipt.mail is not UNSET
            assert (receipt.mail.state, receipt.mail.attempts) == (MailState.ACKED, 1)


def _unique(options: dict[str, Any], give: Any) -> dict[str, Any]:
    key = options.get("idempotency_key")
    return {"idempotency_key": f"{key}-{give.__name__}"} if key else options


async def test_the_same_message_sent_twice_is_delivered_once(client: MakeClient) -> None:
    async with client("ann") as ann, client("bob") as bob:
        seen: list[str] = []

        @bob.on()
        def note(message: Incoming) -> dict[str, int]:
            seen.append(message.message_id)
            return {"count": len(seen)}

        for options in ({"durable": True, "message_id": "m"}, {"idempotency_key": "k"}):
            first = await ann.send(bob.client_id, {"some": "work"}, **options)
            second = await ann.send(bob.client_id, {"some": "work"}, **options)
            assert (first.is_duplicate, second.is_duplicate) == (False, True)
            assert second.message_id == first.message_id
            assert second.acks[0].read() == first.acks[0].read()
        assert len(seen) == 2


async def test_a_key_that_is_used_for_another_message_is_refused_and_names_the_first(
    client: MakeClient,
) -> None:
    async with client("ann") as ann, client("bob") as bob:
        bob.on()(lambda message: None)
        first = await ann.send(bob.client_id, {"n": 1}, idempotency_key="k2")
        with pytest.raises(CallRefused) as refused:
            await ann.send(bob.client_id, {"n": 2}, idempotency_key="k2")
        assert refused.value.code == -32602
        assert refused.value.data == {"rule": "idempotency", "firstMessageId": first.message_id}


@pytest.mark.parametrize(
    "options",
    [
        {"ttl_seconds": 0},
        {"ttl_seconds": -1},
        {"ttl_seconds": float("nan")},
        {"ttl_seconds": float("inf")},
        {"idempotency_key": "x" * 257},
        {"idempotency_key": "x" * 1024 * 1024},
    ],
    ids=["zero", "negative", "nan", "infinite", "long key", "key of 1 MiB"],
)
async def test_options_that_no_bus_accepts_are_a_mistake_of_the_caller(
    client: MakeClient, options: dict[str, Any]
) -> None:
    async with client("ann") as ann:
        for give in (ann.send, ann.post):
            with pytest.raises(ValueError, match=r"ttl_seconds is a number|has at most 256"):
                await give("bob", {}, **options)


async def test_a_message_that_was_handed_over_before_says_so(client: MakeClient) -> None:
    async with client("ann") as ann, anyio.create_task_group() as tasks:
        arrived, outcomes = anyio.Event(), list[Any]()
        async with client("bob") as bob:

            @bob.on()
            async def think(message: Incoming) -> None:
                arrived.set()
                await anyio.sleep_forever()

            async def send() -> None:
                outcomes.append(await ann.send(bob.client_id, {}, durable=True))

            tasks.start_soon(send)
            with anyio.fail_after(PATIENCE_SECONDS):
                await arrived.wait()
        async with client("bob") as later:
            with anyio.fail_after(PATIENCE_SECONDS):
                message = await anext(later.messages())
            assert (message.delivery_attempt, message.is_redelivery) == (2, True)
            await message.reply()
    [receipt] = outcomes
    assert receipt.is_kept or receipt.acks[0].success


async def test_a_restart_of_the_bus_is_invisible_to_a_durable_send(bus: Restartable) -> None:
    async with Client("ann", address=bus.address(), **PATIENT) as ann:
        arrived, receipts = anyio.Event(), list[Any]()

        @ann.on()
        async def think_once(message: Incoming) -> dict[str, int] | None:
            if not message.is_redelivery:
                arrived.set()
                await anyio.sleep_forever()
            return {"attempt": message.delivery_attempt}

        async def send() -> None:
            receipts.append(await ann.send("ann", {"n": 1}, durable=True))

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                await arrived.wait()
                bus.kill()
                await bus.start()
        [receipt] = receipts
        assert receipt.is_kept or receipt.acks[0].read() == {"attempt": 2}


class ScriptedMail:
    """A bus that keeps mail and does with each send what the test says."""

    def __init__(self, *scripts: Any, welcome: Json = WITH_MAIL) -> None:
        self._scripts = list(scripts)
        self._welcome = welcome
        self.ids: list[str] = []
        self.causes: list[str | None] = []
        self.hello: Json = None

    async def __call__(self, line: ScriptedLine) -> None:
        self.hello = await line.read()
        await line.answer(self.hello, self._welcome)
        while True:
            request = await line.read()
            if request["method"] == "ping":
                await line.answer(request, {"timestamp": "now"})
                continue
            self.ids.append(request["params"]["messageId"])
            self.causes.append(request["params"].get("causedBy"))
            if await self._scripts.pop(0)(line, request) == "hang up":
                return


async def accept(line: ScriptedLine, request: Json) -> None:
    message_id = request["params"]["messageId"]
    await line.answer(request, {"accepted": True, "messageId": message_id, "acks": []})


async def hang_up(line: ScriptedLine, request: Json) -> str:
    return "hang up"


def refuse(code: int, **data: object) -> Any:
    async def refused(line: ScriptedLine, request: Json) -> None:
        error = {"code": code, "message": "refused", "data": data}
        await line.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

    return refused


async def ignore(line: ScriptedLine, request: Json) -> None: ...


full = refuse(-32004, rule="mail.box_count", retrySeconds=0.01)
stopping = refuse(-32004, **STOPPING)


async def test_a_durable_send_is_repeated_with_its_id_and_cause_until_it_is_accepted(
    tmp_path: Path,
) -> None:
    mail = ScriptedMail(hang_up, stopping, full, hang_up, accept)
    async with (
        open_scripted_bus(tmp_path / "bus.sock", mail) as address,
        Client("ann", address=address, **PATIENT) as ann,
    ):
        receipt = await ann.send("bob", {}, durable=True, caused_by="m0")
        assert mail.ids == [receipt.message_id] * 5
        assert mail.causes == ["m0"] * 5
        assert mail.hello["params"]["extensions"] == {"deliveryAttempt": True}


@pytest.mark.parametrize("post", [False, True], ids=["send", "post"])
async def test_any_send_is_repeated_while_the_bus_is_stopping(tmp_path: Path, post: bool) -> None:
    mail = ScriptedMail(stopping, stopping, accept)
    async with (
        open_scripted_bus(tmp_path / "bus.sock", mail) as address,
        Client("ann", address=address, **PATIENT) as ann,
    ):
        receipt = await (ann.post if post else ann.send)("bob", {})
        assert mail.ids == [receipt.message_id] * 3


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (hang_up, ConnectionLost),
        (full, CallRefused),
        (refuse(-32004, rule="quota.connections", retrySeconds=0.01), CallRefused),
        (refuse(-32004, rule="grant.x.messages_per_second", retrySeconds=0.01), CallRefused),
        (refuse(-32004, rule="busy"), CallRefused),
        (refuse(-32004, rule="busy", retrySeconds="soon"), CallRefused),
        (refuse(-32602, **STOPPING), CallRefused),
    ],
    ids=["lost", "full", "quota", "rate", "no time", "no number", "other code"],
)
async def test_other_failures_of_a_plain_send_are_raised(
    tmp_path: Path, script: Any, error: type[Exception]
) -> None:
    mail = ScriptedMail(script)
    async with (
        open_scripted_bus(tmp_path / "bus.sock", mail) as address,
        Client("ann", address=address, **PATIENT) as ann,
    ):
        with pytest.raises(error):
            await ann.send("bob", {})
        assert len(mail.ids) == 1


async def test_a_durable_send_that_is_refused_for_good_is_not_repeated(tmp_path: Path) -> None:
    mail = ScriptedMail(refuse(-32602, rule="idempotency"))
    async with (
        open_scripted_bus(tmp_path / "bus.sock", mail) as address,
        Client("ann", address=address, **PATIENT) as ann,
    ):
        with pytest.raises(CallRefused):
            await ann.send("bob", {}, durable=True)
        assert len(mail.ids) == 1


async def test_when_the_time_is_up_the_last_error_is_raised(tmp_path: Path) -> None:
    later = refuse(-32004, rule="mail.busy", retrySeconds=60)
    mail = ScriptedMail(full, later, ignore)
    async with (
        open_scripted_bus(tmp_path / "bus.sock", mail) as address,
        Client("ann", address=address, timeout_seconds=20) as ann,
    ):
        with anyio.fail_after(PATIENCE_SECONDS), pytest.raises(CallRefused) as refused:
            await ann.send("bob", {}, durable=True)  # at once: the next time would be too late
        assert refused.value.data == {"rule": "mail.busy", "retrySeconds": 60}
        with pytest.raises(NoAnswer):
            await ann.send("bob", {}, durable=True, timeout_seconds=0.05)


async def test_what_may_be_accepted_is_not_said_to_be_refused(tmp_path: Path) -> None:
    mail = ScriptedMail(hang_up, refuse(-32004, rule="mail.busy", retrySeconds=60))
    async with (
        open_scripted_bus(tmp_path / "bus.sock", mail) as address,
        Client("ann", address=address, **PATIENT) as ann,
    ):
        with pytest.raises(ConnectionLost) as lost:
            await ann.send("bob", {}, durable=True)
        assert lost.value.maybe_delivered
        assert isinstance(lost.value.__cause__, CallRefused)


async def test_a_bus_that_does_not_come_back_ends_a_durable_send(bus: Restartable) -> None:
    async with Client("ann", address=bus.address(), **PATIENT) as ann:
        bus.kill()
        with pytest.raises((BusUnreachable, ConnectionLost)):
            await ann.send("bob", {}, durable=True, timeout_seconds=0.5)


@pytest.mark.parametrize("options", [{"durable": True}, {"idempotency_key": "k"}])
async def test_a_bus_that_keeps_no_mail_gets_no_durable_message(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    mail = ScriptedMail(accept, welcome={"serverId": "bus-other"})
    async with (
        open_scripted_bus(tmp_path / "bus.sock", mail) as address,
        Client("ann", address=address, **PATIENT) as ann,
    ):
        assert not ann.keeps_mail
        with pytest.raises(CallRefused, match="this bus keeps no mail"):
            await ann.send("bob", {}, **options)
        assert (await ann.send("bob", {}, ttl_seconds=60)).accepted
        assert len(mail.ids) == 1


@pytest.mark.parametrize(
    ("said", "attempt"), [({}, 1), ({"deliveryAttempt": 3}, 3), ({"deliveryAttempt": 0}, 1)]
)
async def test_the_attempt_is_what_the_bus_says(
    tmp_path: Path, said: dict[str, Any], attempt: int
) -> None:
    async def script(line: ScriptedLine) -> None:
        await line.welcome()
        message = process_message(1, "ann", {})
        message["params"] |= said
        await line.say(message)
        await line.listen_forever()

    async with (
        open_scripted_bus(tmp_path / "bus.sock", script) as address,
        Client("ann", address=address, **PATIENT) as ann,
    ):
        message = await anext(ann.messages())
        assert (message.delivery_attempt, message.is_redelivery) == (attempt, attempt > 1)
