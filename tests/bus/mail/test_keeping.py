"""What is kept, for whom, and who gets it."""

from __future__ import annotations

import pytest

from busd.bus.mail_policy import MailSettings
from busd.errors import CallRefused
from busd.testing import MemoryBus, ScriptedPeer
from tests.bus.mail.disk_bus import DURABLE, ack_all, texts

DAY = 86_400.0


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(mail=MailSettings())


@pytest.fixture
def chat(bus: MemoryBus) -> ScriptedPeer:
    return bus.join("tg:1")


def known(bus: MemoryBus, name: str, pattern: str = "") -> None:
    """Have somebody answer for a name or a pattern, and leave."""
    peer = bus.join(name, subscribe=[pattern] if pattern else [])
    peer.leave()


@pytest.mark.parametrize(
    ("pattern", "address"),
    [("", "agent:w"), ("app:exact", "app:exact"), ("app:*", "app:7"), ("app:?:x", "app:7:x")],
)
def test_mail_for_an_absent_peer_is_delivered_in_order_when_it_joins(
    bus: MemoryBus, chat: ScriptedPeer, pattern: str, address: str
) -> None:
    known(bus, "agent:w", pattern)
    sent = [chat.send(address, {"n": number}) for number in range(20)]
    assert [each.result.undelivered for each in sent] == ["kept"] * 20
    worker = bus.join("agent:w", subscribe=[pattern] if pattern else [])
    assert ack_all(worker) == list(range(20))
    assert bus.store.totals.count == 0


def test_an_address_with_brackets_is_known_as_it_is_spelled(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    known(bus, "agent:w", "app:[ab]")
    assert chat.send("app:a", {"n": 1}).result.undelivered == "kept"
    assert chat.send("app:c", {"n": 2}).result.undelivered == "no route"


@pytest.mark.parametrize("pattern", ["*", "?gent:*", "[a]gent:*", "*:w"])
def test_an_observer_does_not_make_an_address_known(
    bus: MemoryBus, chat: ScriptedPeer, pattern: str
) -> None:
    known(bus, "monitor:1", pattern)
    assert chat.send("agent:w", {"n": 1}).result.undelivered == "no route"


def test_an_observer_gets_copies_and_does_not_settle_mail(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    known(bus, "agent:w")
    observer = bus.join("monitor:1", subscribe=["*"])
    sent = chat.send("agent:w", {"n": 1})
    assert sent.result.undelivered == "kept"
    assert not observer.inbox  # it gets a copy of what is delivered
    worker = bus.join("agent:w")
    observer.next_message().ack()
    assert bus.store.totals.count == 1
    assert ack_all(worker) == [1]
    assert bus.store.totals.count == 0


def test_the_ack_of_an_observer_does_not_hide_that_the_addressee_wants_it_later(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    observer = bus.join("monitor:1", subscribe=["*"])
    worker = bus.join("agent:w")
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    observer.next_message().ack()
    worker.next_message().fail("later", retry_seconds=5)
    assert bus.store.totals.count == 1
    bus.advance(5)
    worker.next_message().ack()
    observer.next_message().ack()
    assert sent.result.undelivered is None
    assert bus.store.totals.count == 0


def test_a_message_to_an_address_that_nobody_ever_had_has_no_route(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    known(bus, "agent:worker")
    typo = chat.send("agent:wroker", {"n": 1}).result
    assert (typo.undelivered, typo.mail) == ("no route", None)
    assert bus.store.totals.count == 0


def test_a_durable_message_is_kept_for_an_address_that_nobody_ever_had(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    receipt = chat.send("agent:new", {"n": 1}, delivery=DURABLE).result
    assert receipt.undelivered == "kept"
    assert ack_all(bus.join("agent:new")) == [1]


@pytest.mark.parametrize(("after", "undelivered"), [(DAY - 60, "kept"), (DAY + 1, "no route")])
def test_an_address_is_known_for_the_time_set_and_no_longer(after: float, undelivered: str) -> None:
    bus = MemoryBus(mail=MailSettings(known_seconds=DAY))
    known(bus, "agent:w")
    chat = bus.join("tg:1")
    bus.advance(after, step=600)
    assert chat.send("agent:w", {"n": 1}).result.undelivered == undelivered


def test_whoever_stays_connected_for_long_is_known_after_that() -> None:
    bus = MemoryBus(mail=MailSettings(known_seconds=DAY))
    worker = bus.join("agent:w")
    bus.advance(3 * DAY, step=600)
    worker.leave()
    bus.advance(DAY / 2, step=600)
    assert bus.join("tg:1").send("agent:w", {"n": 1}).result.undelivered == "kept"


def test_patterns_that_are_kept_need_nobody_who_ever_answered() -> None:
    bus = MemoryBus(mail=MailSettings(keep=["app:*", "one"]))
    chat = bus.join("tg:1")
    kept = [chat.send(to, {"n": to}).result.undelivered for to in ("app:x", "one", "onex")]
    assert kept == ["kept", "kept", "no route"]


def test_patterns_that_are_discarded_keep_only_what_is_durable() -> None:
    bus = MemoryBus(mail=MailSettings(discard=["app:*"]))
    chat = bus.join("tg:1")
    known(bus, "app:x")
    assert chat.send("app:x", {"n": 1}).result.undelivered == "no route"
    assert chat.send("app:x", {"n": 2}, delivery=DURABLE).result.undelivered == "kept"


def test_the_names_of_command_lines_are_not_known(bus: MemoryBus, chat: ScriptedPeer) -> None:
    known(bus, "cli:4711")
    assert chat.send("cli:4711", {"n": 1}).result.undelivered == "no route"


def test_settings_apply_while_the_bus_runs(bus: MemoryBus, chat: ScriptedPeer) -> None:
    assert chat.send("app:x", {"n": 1}).result.undelivered == "no route"
    bus.mailboxes.change(MailSettings(keep=["app:*"]))
    assert chat.send("app:x", {"n": 1}).result.undelivered == "kept"


def test_mail_goes_to_everybody_who_answers_and_one_of_them_is_enough(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    first, second = bus.join("agent:w"), bus.join("agent:w")
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE)
    first.next_message().fail("not mine")
    assert not sent.is_done
    second.next_message().ack()
    assert [ack.success for ack in sent.result.acks] == [False, True]
    assert bus.store.totals == type(bus.store.totals)()


def test_a_mailbox_for_a_pattern_is_refused(bus: MemoryBus, chat: ScriptedPeer) -> None:
    with pytest.raises(CallRefused) as refused:
        chat.send("agent:*", {"n": 1}, delivery=DURABLE).check()
    assert refused.value.code == -32602
    assert bus.store.totals.count == 0


@pytest.mark.parametrize("payload", [None, 1, "{}", [{}]])
def test_a_payload_that_is_no_object_is_refused_and_not_kept(
    bus: MemoryBus, chat: ScriptedPeer, payload: object
) -> None:
    with pytest.raises(CallRefused) as refused:
        chat.send("agent:w", payload, delivery=DURABLE).check()
    assert refused.value.code == -32602
    assert bus.store.totals.count == 0


def test_a_bus_without_mailboxes_refuses_durable_messages() -> None:
    bus = MemoryBus()
    worker = bus.join("agent:w")
    with pytest.raises(CallRefused) as refused:
        bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE).check()
    assert refused.value.data == {"rule": "mail"}
    assert not worker.inbox


def test_ids_and_payloads_leave_as_they_came(bus: MemoryBus, chat: ScriptedPeer) -> None:
    ids: list[str | int] = [0, 7, -(2**63), "x", "é" * 256]
    for message_id in ids:
        sent = chat.send("agent:w", {"n": 1, "é": "ß"}, message_id=message_id, delivery=DURABLE)
        assert sent.result.message_id == message_id
    worker = bus.join("agent:w")
    handed = list(worker.inbox)
    ack_all(worker)
    assert [bytes(each.members["messageId"]) for each in handed] == [
        b"0",
        b"7",
        b"-9223372036854775808",
        b'"x"',
        f'"{"é" * 256}"'.encode(),
    ]
    assert {each.raw_payload for each in handed} == {'{"n":1,"é":"ß"}'.encode()}
    assert {each.sender for each in handed} == {"tg:1"}


def test_a_message_without_an_id_gets_one(bus: MemoryBus, chat: ScriptedPeer) -> None:
    sent = chat.send("agent:w", {"n": 1}, delivery=DURABLE).result
    assert str(sent.message_id).startswith("msg_")
    assert bus.join("agent:w").next_message().message_id == sent.message_id


def test_an_unknown_peer_gets_what_is_kept_only_for_its_own_address(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    for to in ("agent:a", "agent:ab", "agent:b"):
        chat.send(to, {"n": to}, delivery=DURABLE)
    assert texts(bus.join("agent:a")) == ["agent:a"]
    assert texts(bus.join("x", subscribe=["agent:a*"])) == ["agent:ab"]


def test_an_explicit_unsubscribe_makes_an_address_unknown(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    worker = bus.join("agent:w", subscribe=["app:x"])
    worker.unsubscribe("app:x")
    assert chat.send("app:x", {"n": 1}).result.undelivered == "no route"


def test_agents_that_listen_to_all_chats_do_not_take_the_mail_of_their_bridge(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    agent = bus.join("agent:worker-1", subscribe=["tg:*"])  # as existing agents do
    bridge = bus.join("telegram-bridge", subscribe=["tg:*"])
    bridge.leave()
    assert chat.send("tg:601", {"n": 1}).result.undelivered == "kept"
    assert chat.send("tg:602", {"n": 2}, delivery={"durable": True}).result.undelivered == "kept"
    assert not agent.inbox
    bridge = bus.join("telegram-bridge", subscribe=["tg:*"])
    assert ack_all(bridge) == [1, 2]


def test_an_agent_answers_for_addresses_of_others_that_nobody_else_is_known_to_answer(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    agent = bus.join("agent:bob", subscribe=["team:*"])
    sent = chat.send("team:red", {"n": 1}, delivery={"durable": True})
    assert ack_all(agent) == [1]
    assert sent.result.mail is not None
    assert sent.result.mail.state == "acked"


def test_a_peer_that_unsubscribes_and_will_be_back_finds_its_mail(
    bus: MemoryBus, chat: ScriptedPeer
) -> None:
    gateway = bus.join("gateway", subscribe=["web:1", "web:2"])
    gateway.call("unsubscribe", {"address": "web:1", "keepMail": True}).check()
    gateway.call("unsubscribe", {"address": "web:2", "keepMail": None}).check()
    assert chat.send("web:1", {"n": 1}).result.undelivered == "kept"
    assert chat.send("web:2", {"n": 2}).result.undelivered == "no route"
    gateway.subscribe("web:1")
    assert ack_all(gateway) == [1]
