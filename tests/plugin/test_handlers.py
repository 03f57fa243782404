"""What a plugin's functions get and give."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.daemons import PATIENCE_SECONDS
from tests.plugin.conftest import Ask, Plugged, joined
from tests.wire_peers import connect


def hello(text: str) -> dict[str, Any]:
    return {"type": "hello", "content": {"text": text}}


def test_the_example_of_the_style_guide_works_as_it_is(ask: Ask, suffix: str) -> None:
    ack = ask("app:greet", hello("good day"))
    assert ack["success"]
    assert ack["clientId"] == "plugin:greet"
    assert ack["payload"]["type"] == "hello"
    assert ack["payload"]["from"] == "app:greet"
    assert ack["payload"]["content"] == {"text": f"good day to you, tg:{suffix}"}


def test_refuse_is_a_failed_ack_with_its_reason(ask: Ask) -> None:
    ack = ask("app:greet", hello(""))
    assert (ack["success"], ack["message"]) == (False, "nothing to greet")
    assert "shouldRetry" not in ack
    ack = ask("good:later", {})
    assert (ack["message"], ack["shouldRetry"], ack["retrySeconds"]) == ("too early", True, 4)


def test_a_type_that_no_handler_takes_is_refused_naming_those_that_are(ask: Ask) -> None:
    ack = ask("app:greet", {"type": "goodbye", "content": {}})
    assert (ack["success"], ack["message"]) == (False, "app:greet takes hello; this is goodbye")
    ack = ask("app:greet", {"content": {}})
    assert ack["message"] == "app:greet takes hello; this is a message without a type"
    ack = ask("app:greet", {"type": 5})
    assert ack["message"] == "app:greet takes hello; this is a message without a type"


def test_a_content_that_does_not_fit_is_refused_naming_the_member(ask: Ask) -> None:
    ack = ask("app:greet", {"type": "hello", "content": {"text": 5}})
    assert not ack["success"]
    assert ack["message"] == "hello: content.text: Expected `str`, got `int`"


def test_a_message_to_the_plugins_own_name_is_refused_if_nothing_takes_it(ask: Ask) -> None:
    ack = ask("plugin:greet", hello("x"))
    assert ack["message"] == "plugin greet takes no messages to plugin:greet"


def test_the_handler_is_chosen_by_address_and_type_and_raw_takes_the_rest(
    ask: Ask, suffix: str
) -> None:
    for to in ("good:one", "good:two:x"):
        ack = ask(to, {"type": "ask", "content": {"number": 4}})
        assert ack["payload"]["content"] == {"number": 5}
    ack = ask("good:one", {"type": "other", "from": "tg:real"})
    assert ack["payload"] == {
        "type": "other",
        "said_by": "tg:real",
        "sender": f"tg:{suffix}",
        "to": "good:one",
    }
    assert ask("good:one", {})["payload"]["said_by"] == f"tg:{suffix}"
    assert ask("good:two:x", {"type": "other"})["message"] == "good:two:x takes ask; this is other"


def test_a_handler_of_a_struct_or_a_refusal_gets_what_does_not_fit_as_well(ask: Ask) -> None:
    for number, answer in ((4, 4), ("four", -1)):
        ack = ask("good:any", {"type": "ask", "content": {"number": number}})
        assert (ack["success"], ack["payload"]["content"]) == (True, {"number": answer})


def test_none_is_an_empty_payload_and_an_ack_goes_as_it_is(ask: Ask) -> None:
    assert ask("good:none", {})["payload"] == {}
    ack = ask("good:ack", {})
    assert (ack["success"], ack["message"], ack["retrySeconds"]) == (False, "not now", 2)


def test_messages_of_one_peer_are_begun_in_the_order_they_came(
    shared: Plugged, suffix: str, opened: ExitStack
) -> None:
    name = f"tg:order{suffix}"
    peer = joined(shared, name, opened)
    asked = [{"type": "ask", "content": {"number": number}} for number in range(200)]
    requests = [peer.send_message("good:order", payload) for payload in asked]
    answers = [peer.answer_to(request) for request in requests]
    seen = max((a["result"]["acks"][0]["payload"]["seen"] for a in answers), key=len)
    assert seen == [f"{name} {number}" for number in range(200)]


def test_a_plugin_can_send_post_and_read_the_acks(
    shared: Plugged, ask: Ask, opened: ExitStack
) -> None:
    with closing(connect(shared.daemon, "unix")) as owner:
        owner.initialize("tg:someone")
        friend = joined(shared, "tg:friend", opened)
        request = owner.send_message("good:send", {"type": "ask", "content": {}})
        first = friend.next_message()
        assert first["params"]["from"] == "app:me"
        assert first["params"]["messageId"] == "m-1"
        assert first["params"]["payload"]["from"] == "app:me"
        assert first["params"]["payload"]["content"] == {"number": 1}
        posted = friend.next_message()
        assert posted["params"]["from"] == "plugin:good"
        friend.answer(first, {"success": True, "payload": {"thanks": 1}})
        [ack] = owner.answer_to(request)["result"]["acks"]
        assert ack["payload"] == {
            "acks": ["tg:friend"],
            "answer": {"thanks": 1},
            "again": True,
            "lost": "no route",
            "bad": [
                False,
                "malformed address: 'bad address' has spaces or unprintable characters",
            ],
            "long": [False, "a message id has at most 256 characters"],
        }


def test_forward_keeps_payload_sender_and_id_and_gives_the_acks(
    shared: Plugged, suffix: str, opened: ExitStack
) -> None:
    peer, friend = (joined(shared, name, opened) for name in (f"tg:{suffix}", "tg:friend"))
    payload = {"type": "x", "content": {"ü": [1, 2.50, None]}}
    request = peer.request(
        "sendMessage",
        {"from": "tg:other", "to": "good:forward", "messageId": "m-77", "payload": payload},
    )
    message = friend.next_message()
    assert message["params"] == {
        "from": "tg:other",
        "to": "tg:friend",
        "messageId": "m-77",
        "payload": payload,
    }
    friend.answer(message, {"success": False, "message": "not today"})
    [ack] = peer.answer_to(request)["result"]["acks"]
    assert (ack["success"], ack["message"]) == (False, "not today")
    assert ack["clientId"] == "plugin:good"


def test_a_plugin_can_subscribe_later_and_forward_to_the_others_at_the_same_address(
    shared: Plugged, ask: Ask, opened: ExitStack
) -> None:
    friend = joined(shared, "tg:friend", opened)
    assert ask("good:subscribe", {})["payload"] == {"present": True, "absent": False}
    friend.call("subscribe", {"address": "late:1"})
    peer = joined(shared, "tg:p", opened)
    request = peer.send_message("late:1", {"type": "x"})
    for _ in range(2):  # once by the bus, once by the plugin; never to the plugin again
        friend.answer(friend.next_message(), {"success": True})
    acks = peer.answer_to(request)["result"]["acks"]
    by_name = {ack["clientId"]: ack["payload"] for ack in acks}
    assert by_name == {"tg:friend": {}, "plugin:good": {"others": ["tg:friend"]}}
    friend.close()


def test_the_context_knows_the_plugins_place(shared: Plugged, ask: Ask) -> None:
    assert ask("good:place", {})["payload"] == {
        "address": f"unix:{shared.daemon.path}",
        "state": str(shared.daemon.folder / "state"),
        "policy": "open",
        "words": 0,
    }


def test_a_plugin_is_a_peer_like_any_other(shared: Plugged) -> None:
    status = shared.call("getStatus")["connections"]
    by_name = {each["clientId"]: each for each in status}
    assert by_name["plugin:greet"]["subscriptions"] == ["app:greet", "plugin:greet"]
    assert by_name["plugin:good"]["clientInfo"] == {"name": "good", "version": "2.0"}
    assert "plugin:bad_start" not in by_name


def test_a_message_to_a_plugin_is_in_the_activity_log(
    ask: Ask, shared: Plugged, suffix: str
) -> None:
    with closing(connect(shared.daemon, "unix")) as peer:
        peer.initialize("tg:log")
        message = {"to": "app:greet", "messageId": f"m{suffix}", "payload": hello("x")}
        peer.answer_to(peer.request("sendMessage", message))
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := shared.call("bus.trace", {"messageId": f"m{suffix}"})["attempts"]):
        assert time.monotonic() < end  # it is written a moment later
    assert "plugin:greet" in json.dumps(found)


def test_a_method_of_a_plugin_is_one_of_the_bus(shared: Plugged, opened: ExitStack) -> None:
    peer = joined(shared, "tg:asks", opened)
    assert peer.call("good.double", {"aNumber": 4}) == {"theNumber": 8, "askedBy": "tg:asks"}
    document = peer.call("rpc.discover")
    [method] = [each for each in document["methods"] if each["name"] == "good.double"]
    assert method["summary"] == "Give twice a number."
    assert method["params"][0]["name"] == "aNumber"


@pytest.mark.parametrize(
    ("method", "params", "code", "rule", "message"),
    [
        ("good.double", {"aNumber": -1}, -32602, "plugin.good", "only what is positive"),
        ("good.double", {"aNumber": 0}, -32004, "busy", "not yet"),
        ("good.double", {}, -32602, "params", "good.double: "),
        ("faulty.raise", {}, -32603, "plugin", "plugin faulty failed"),
        ("faulty.hang", {}, -32603, "plugin", "plugin faulty did not answer in time"),
        ("faulty.nonsense", {}, -32603, "plugin", "plugin faulty failed"),
    ],
)
def test_a_method_that_does_not_go_well_says_whose_fault_it_is(
    shared: Plugged,
    opened: ExitStack,
    method: str,
    params: dict[str, int],
    code: int,
    rule: str,
    message: str,
) -> None:
    peer = joined(shared, "tg:asks", opened)
    error = peer.answer_to(peer.request(method, params))["error"]
    assert (error["code"], error["data"]["rule"]) == (code, rule)
    assert error["message"].startswith(message)
    assert "secret" not in json.dumps(error)
