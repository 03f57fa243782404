"""The methods for mailboxes and dead letters, and what a bad `delivery` gets, on every loop."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import DaemonWith
from tests.daemons import Daemon
from tests.wire_peers import Json, Peer, connect, join_by

METHODS: dict[str, Json] = {
    "bus.listMailboxes": {},
    "bus.showMailbox": {"address": "agent:x"},
    "bus.purgeMailbox": {"address": "agent:x"},
    "bus.listDead": {},
    "bus.showDead": {"id": 1},
    "bus.retryDead": {"ids": [1]},
    "bus.dropDead": {"ids": [1]},
}


@pytest.fixture
def ann(daemon: Daemon, opened: ExitStack, suffix: str) -> Peer:
    """A peer that sends and is an admin."""
    return join_by(daemon, "unix", f"ann{suffix}", opened)


@pytest.fixture
def box(suffix: str) -> str:
    """An address that nobody answers for."""
    return f"agent:away{suffix}"


def keep(peer: Peer, to: str, *numbers: int, **delivery: Json) -> None:
    for number in numbers:
        params = {"to": to, "messageId": f"{to}/m{number}", "payload": {"n": number}}
        sent = peer.call("sendMessage", {**params, "delivery": {"durable": True, **delivery}})
        assert sent["undelivered"] == "kept"


def make_dead(sender: Peer, addressee: Peer, to: str, *numbers: int) -> list[int]:
    """Have messages refused of whose refusal nobody is told; return the ids of the letters."""
    for number in numbers:
        params: Json = {"to": to, "messageId": f"{to}/m{number}", "payload": {"n": number}}
        params["delivery"] = {"durable": True}
        sender.send_json({"jsonrpc": "2.0", "method": "sendMessage", "params": params})
        message = addressee.next_message()
        addressee.answer(message, {"success": False, "message": "never"})
    addressee.call("ping")
    return [letter["id"] for letter in sender.call("bus.listDead", {"to": to})["letters"]]


def refusal(peer: Peer, method: str, params: Json) -> Json:
    answer = peer.answer_to(peer.request(method, params))
    assert "error" in answer, answer
    return answer["error"]


# Mailboxes


def test_mailboxes_are_listed_with_what_is_in_them(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack
) -> None:
    keep(ann, box, 1, 2)
    [found] = ann.call("bus.listMailboxes", {"prefix": box})["mailboxes"]
    assert found.pop("oldest").endswith("Z")
    counts = {"count": 2, "bytes": 16, "dead": 0, "deadBytes": 0}
    assert found == {"address": box, "answeredBy": [], **counts}
    bob = join_by(daemon, "unix", box, opened)
    assert bob.next_message()["params"]["payload"] == {"n": 1}
    [found] = ann.call("bus.listMailboxes", {"prefix": box})["mailboxes"]
    assert (found["answeredBy"], found["count"]) == ([box], 2)


def test_mailboxes_are_listed_page_by_page(ann: Peer, box: str) -> None:
    for number in range(3):
        keep(ann, f"{box}.{number}", 1)
    first = ann.call("bus.listMailboxes", {"prefix": box, "limit": 2})
    assert [each["address"][-1] for each in first["mailboxes"]] == ["0", "1"]
    assert first["more"]
    after = first["mailboxes"][-1]["address"]
    rest = ann.call("bus.listMailboxes", {"prefix": box, "after": after})
    assert ([each["address"][-1] for each in rest["mailboxes"]], rest["more"]) == (["2"], False)


def test_a_mailbox_shows_its_messages_and_payloads_only_on_request(ann: Peer, box: str) -> None:
    keep(ann, box, 1, 2, 3)
    shown = ann.call("bus.showMailbox", {"address": box, "limit": 2})
    first, second = shown["messages"]
    assert shown["more"]
    assert (first["messageId"], first["state"], first["attempts"]) == (f"{box}/m1", "kept", 0)
    assert "payload" not in first
    rest = ann.call("bus.showMailbox", {"address": box, "after": second["id"], "payloads": True})
    assert [mail["payload"] for mail in rest["messages"]] == [{"n": 3}]
    assert not rest["more"]


def test_a_message_that_is_tried_again_says_when_and_why(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack
) -> None:
    bob = join_by(daemon, "unix", box, opened)
    ann.send_message(box, {}, delivery={"durable": True})
    message = bob.next_message()
    [mail] = ann.call("bus.showMailbox", {"address": box})["messages"]
    assert (mail["state"], mail["attempts"]) == ("delivered", 1)
    later = {"success": False, "message": "cold", "shouldRetry": True, "retrySeconds": 60}
    bob.answer(message, later)
    bob.call("ping")
    [mail] = ann.call("bus.showMailbox", {"address": box})["messages"]
    assert (mail["state"], mail["reason"]) == ("retrying", "cold")
    assert mail["nextAttempt"] > mail["keptAt"]


def test_large_payloads_come_one_by_one_and_within_a_frame(ann: Peer, box: str) -> None:
    text = "x" * 700_000
    for number in range(2):
        params = {"to": box, "messageId": f"m{number}", "payload": {"text": text}}
        ann.call("sendMessage", {**params, "delivery": {"durable": True}})
    page = ann.call("bus.showMailbox", {"address": box, "payloads": True})
    assert (len(page["messages"]), page["more"]) == (1, True)
    assert page["messages"][0]["payload"] == {"text": text}


@pytest.mark.parametrize("late", [{"shouldRetry": True}, {"message": "never"}, {"success": True}])
def test_a_purge_deletes_everything_and_tells_who_waits(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack, late: Json
) -> None:
    bob = join_by(daemon, "unix", box, opened)
    sent_as = {"messageId": f"{box}/waits"}
    sent = ann.send_message(box, {}, delivery={"durable": True}, **sent_as)
    message = bob.next_message()
    assert ann.call("bus.purgeMailbox", {"address": box}) == {"purged": 1}
    receipt = ann.answer_to(sent)["result"]
    assert (receipt["mail"]["state"], receipt["acks"]) == ("purged", [])
    again = {"to": box, "payload": {}, "delivery": {"durable": True}, **sent_as}
    assert ann.call("sendMessage", again)["mail"]["state"] == "purged"  # and not "kept"
    bob.answer(message, {"success": False, **late})
    bob.expect_nothing()
    assert ann.call("bus.listMailboxes", {"prefix": box})["mailboxes"] == []
    assert ann.call("bus.listDead", {"to": box})["letters"] == []
    statuses = {each["status"] for each in ann.call("bus.trace", sent_as)["attempts"]}
    assert statuses == {"kept", "purged", "ok" if late.get("success") else "failed"}


def test_what_comes_after_a_purge_is_delivered(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack
) -> None:
    keep(ann, box, *range(5))
    assert ann.call("bus.purgeMailbox", {"address": box}) == {"purged": 5}
    keep(ann, box, 7)
    bob = join_by(daemon, "unix", box, opened)
    assert bob.next_message()["params"]["payload"] == {"n": 7}


def test_a_large_mailbox_is_purged_in_portions(ann: Peer, box: str) -> None:
    numbers = [
        ann.send_message(box, {}, delivery={"durable": True}, messageId=f"{number}")
        for number in range(1_100)
    ]
    for number in numbers:
        ann.answer_to(number)
    assert ann.call("bus.purgeMailbox", {"address": box}) == {"purged": 1_100}


def test_a_purge_of_an_unknown_mailbox_deletes_nothing(ann: Peer, box: str) -> None:
    assert ann.call("bus.purgeMailbox", {"address": box}) == {"purged": 0}


# Dead letters


def test_a_dead_letter_has_a_reason_and_its_payload(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack
) -> None:
    bob = join_by(daemon, "unix", box, opened)
    [number] = make_dead(ann, bob, box, 1)
    letter = ann.call("bus.showDead", {"id": number})
    assert (letter["reason"], letter["payload"], letter["state"]) == ("never", {"n": 1}, "dead")
    assert letter["buriedAt"] >= letter["keptAt"]


def test_dead_letters_are_chosen_by_address_and_sender(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack, suffix: str
) -> None:
    bob = join_by(daemon, "unix", box, opened)
    bob.call("subscribe", {"address": f"{box}*"})
    for to in (box, f"{box}.1"):
        make_dead(ann, bob, to, 1)

    def found(**patterns: str) -> list[str]:
        return [each["to"] for each in ann.call("bus.listDead", patterns)["letters"]]

    assert found(to=f"{box}*") == [box, f"{box}.1"]
    assert found(to=box) == [box]
    assert found(to=f"{box}*", **{"from": f"an*{suffix}"}) == [box, f"{box}.1"]
    assert found(to=f"{box}*", **{"from": f"ann{suffix}"}) == [box, f"{box}.1"]
    assert found(to=f"{box}*", **{"from": f"an{suffix}"}) == []
    assert found(to=f"?{box[1:]}") == [box]


def test_a_dead_letter_that_is_retried_is_delivered(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack
) -> None:
    bob = join_by(daemon, "unix", box, opened)
    [number] = make_dead(ann, bob, box, 1)
    done = ann.call("bus.retryDead", {"ids": [number, number]})
    assert (done["retried"], done["failed"], done["missing"]) == (1, 0, [])
    message = bob.next_message()
    assert (message["params"]["messageId"], message["params"]["payload"]) == (f"{box}/m1", {"n": 1})
    bob.answer(message, {})
    bob.call("ping")
    assert ann.call("bus.listMailboxes", {"prefix": box})["mailboxes"] == []
    statuses = [
        each["status"] for each in ann.call("bus.trace", {"messageId": f"{box}/m1"})["attempts"]
    ]
    assert statuses[-2:] == ["kept", "ok"]


def test_dead_letters_are_retried_in_portions(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack
) -> None:
    bob = join_by(daemon, "unix", box, opened)
    make_dead(ann, bob, box, 1, 2, 3)
    bob.close()
    first = ann.call("bus.retryDead", {"to": box, "limit": 2})
    assert (first["retried"], first["more"]) == (2, True)
    page = {"after": first["after"], "before": first["before"]}
    rest = ann.call("bus.retryDead", {"to": box, "limit": 2, **page})
    assert (rest["retried"], rest["more"]) == (1, False)
    shown = ann.call("bus.showMailbox", {"address": box})["messages"]
    assert [mail["messageId"] for mail in shown] == [f"{box}/m{n}" for n in (1, 2, 3)]


def test_letters_that_die_again_meanwhile_are_not_retried_for_ever(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack
) -> None:
    bob = join_by(daemon, "unix", box, opened)
    make_dead(ann, bob, box, 1)
    first = ann.call("bus.retryDead", {"to": box})
    bob.answer(bob.next_message(), {"success": False, "message": "never"})
    bob.call("ping")
    assert len(ann.call("bus.listDead", {"to": box})["letters"]) == 1
    again = {"to": box, "after": first["after"], "before": first["before"]}
    assert ann.call("bus.retryDead", again)["retried"] == 0


def test_a_letter_whose_mailbox_is_full_stays_a_dead_letter(
    daemon_with: DaemonWith, opened: ExitStack, box: str
) -> None:
    daemon = daemon_with({"mail.box_count": 1})
    ann, bob = (join_by(daemon, "unix", name, opened) for name in (f"ann.{box}", box))
    [number] = make_dead(ann, bob, box, 1)
    bob.close()
    keep(ann, box, 2)
    done = ann.call("bus.retryDead", {"ids": [number]})
    assert (done["retried"], done["failed"]) == (0, 1)
    [letter] = done["letters"]
    assert letter["error"] == f"mail for {box} is not kept: 1 (mail.box_count)"
    assert ann.call("bus.showDead", {"id": number})["messageId"] == f"{box}/m1"


def test_dead_letters_are_dropped(ann: Peer, box: str, daemon: Daemon, opened: ExitStack) -> None:
    bob = join_by(daemon, "unix", box, opened)
    first, *_ = make_dead(ann, bob, box, 1, 2, 3)
    assert ann.call("bus.dropDead", {"ids": [first]})["dropped"] == 1
    assert ann.call("bus.dropDead", {"to": box})["dropped"] == 2
    assert ann.call("bus.listDead", {"to": box})["letters"] == []


@pytest.mark.parametrize("method", ["bus.retryDead", "bus.dropDead"])
def test_an_unknown_letter_is_named(ann: Peer, method: str) -> None:
    assert ann.call(method, {"ids": [2**62]})["missing"] == [2**62]


# Bad requests


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("bus.showMailbox", {"address": "not an address"}),
        ("bus.showMailbox", {"address": "agent:*"}),
        ("bus.purgeMailbox", {"address": ""}),
        ("bus.purgeMailbox", {"address": "x" * 300}),
        ("bus.purgeMailbox", {}),
        ("bus.listDead", {"to": ""}),
        ("bus.listDead", {"limit": 0}),
        ("bus.listDead", {"limit": 100_000}),
        ("bus.listDead", {"after": -1}),
        ("bus.showDead", {"id": 10**30}),
        ("bus.showDead", {"id": 2**62}),
        ("bus.showDead", {"id": "1"}),
        ("bus.retryDead", {}),
        ("bus.retryDead", {"all": True, "ids": [1]}),
        ("bus.retryDead", {"ids": [-1]}),
        ("bus.retryDead", {"ids": list(range(501))}),
        ("bus.dropDead", {"to": ""}),
        ("bus.dropDead", {"to": "agent:*", "all": True}),
        ("bus.dropDead", {"all": False}),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(ann: Peer, method: str, params: Json) -> None:
    assert refusal(ann, method, params)["code"] == -32602


def test_nobody_but_an_admin_may_look_at_mail(
    daemon_with: DaemonWith, opened: ExitStack, suffix: str
) -> None:
    daemon = daemon_with({"policy": "strict"})
    owner = join_by(daemon, "unix", f"owner{suffix}", opened)
    token = owner.call("bus.newToken", {"name": f"plain{suffix}"})["token"]
    peer = connect(daemon, "tcp")
    opened.callback(peer.close)
    peer.initialize(f"plain{suffix}", auth={"token": token})
    for method, params in METHODS.items():
        assert refusal(peer, method, params)["data"]["rule"] == "grant.admin", method


# Bad sends


@pytest.mark.parametrize(
    "delivery",
    [
        17,
        "durable",
        [],
        True,
        {"durable": 1},
        {"ttlSeconds": 0},
        {"ttlSeconds": -1},
        {"ttlSeconds": 10**30},
        {"ttlSeconds": "60"},
        {"ttlSeconds": True},
        {"idempotencyKey": ""},
        {"idempotencyKey": "x" * 257},
        {"idempotencyKey": "x" * 1_000_000},
        {"idempotencyKey": 17},
    ],
    ids=lambda delivery: str(delivery)[:40],
)
def test_a_bad_delivery_is_refused_and_nothing_is_kept(ann: Peer, box: str, delivery: Any) -> None:
    if isinstance(delivery, dict):
        delivery = {"durable": True, **delivery}
    error = refusal(ann, "sendMessage", {"to": box, "payload": {}, "delivery": delivery})
    assert error["code"] == -32602
    assert ann.call("bus.listMailboxes", {"prefix": box})["mailboxes"] == []


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_ttl_beyond_all_numbers_is_refused(ann: Peer, box: str, number: str) -> None:
    frame = '{"jsonrpc":"2.0","id":1,"method":"sendMessage","params":{"to":"%s","payload":{},%s}}'
    ann.send_bytes((frame % (box, f'"delivery":{{"durable":true,"ttlSeconds":{number}}}')).encode())
    assert ann.next_json()["error"]["code"] in (-32602, -32700)
    assert ann.call("bus.listMailboxes", {"prefix": box})["mailboxes"] == []


@pytest.mark.parametrize(
    "delivery",
    [None, {}, {"durable": None, "ttlSeconds": None, "idempotencyKey": None}],
    ids=["null", "empty", "null members"],
)
def test_a_delivery_that_says_nothing_is_the_same_as_none(
    ann: Peer, box: str, delivery: Json
) -> None:
    receipt = ann.call("sendMessage", {"to": box, "payload": {}, "delivery": delivery})
    assert receipt["undelivered"] == "no route"


def test_a_number_as_the_id_of_a_durable_message_stays_a_number(
    ann: Peer, box: str, daemon: Daemon, opened: ExitStack
) -> None:
    params = {"to": box, "messageId": 17, "payload": {}, "delivery": {"durable": True}}
    first, second = (ann.call("sendMessage", params) for _ in range(2))
    assert (first["messageId"], second["messageId"]) == (17, 17)
    assert second["mail"] == {**first["mail"], "duplicate": True}
    bob = join_by(daemon, "unix", box, opened)
    assert bob.next_message()["params"]["messageId"] == 17
    bob.expect_nothing()


def test_a_key_that_is_used_for_another_payload_is_refused_and_names_the_first(
    ann: Peer, box: str
) -> None:
    delivery = {"durable": True, "idempotencyKey": "k"}
    params = {"to": box, "messageId": "first", "payload": {"n": 1}, "delivery": delivery}
    ann.call("sendMessage", params)
    for change in ({"payload": {"n": 2}}, {"to": f"{box}.other"}):
        error = refusal(ann, "sendMessage", {**params, **change, "messageId": "second"})
        assert error["code"] == -32602
        assert error["data"] == {"rule": "idempotency", "firstMessageId": "first"}
