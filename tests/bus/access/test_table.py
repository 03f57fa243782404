"""Who may do what: identities × actions on three transports, and the rule that says so."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.bus.access.conftest import Guarded
from tests.bus.access.guarded import (
    GUEST,
    OTHER_GUEST,
    Way,
    as_owner,
    connect_as,
    error_of,
    open_with_header,
    show_token,
)
from tests.wire_peers import Json, Peer, Transport, connect

ALLOWED = ""


class Who(NamedTuple):
    """An identity, how it shows itself, and by what its refusals are named."""

    transport: Transport
    way: Way | int | None  # a uid, or how the token is shown
    token: str = ""
    grant: str = "grant.owner"

    def __str__(self) -> str:
        way = f"uid {self.way}" if isinstance(self.way, int) else self.way
        return f"{self.transport}-{way}-{self.token or 'none'}"

    def open(self, guarded: Guarded, opened: ExitStack) -> tuple[Peer, Json]:
        token = guarded.tokens.get(self.token, self.token)
        if isinstance(self.way, int):
            peer = connect_as(self.way, guarded.daemon, opened)
            return peer, {"auth": {"token": token}} if token else {}
        if self.way is None:
            peer = connect(guarded.daemon, self.transport)
            opened.callback(peer.close)
            return peer, {}
        return show_token(guarded.daemon, self.transport, self.way, token, opened)


_PLAIN, _LIMITED = "grant.token plain", "grant.limited"
PEOPLE = [
    Who("unix", None),
    Who("unix", GUEST, grant="grant.guests"),
    Who("unix", OTHER_GUEST, "owner"),
    Who("unix", OTHER_GUEST, "limited", _LIMITED),
    Who("tcp", "auth", "owner"),
    Who("tcp", "auth", "limited", _LIMITED),
    Who("tcp", "auth", "plain", _PLAIN),
    Who("ws", "auth", "owner"),
    Who("ws", "auth", "limited", _LIMITED),
    Who("ws", "auth", "plain", _PLAIN),
    Who("ws", "bearer", "owner"),
    Who("ws", "bearer", "limited", _LIMITED),
    Who("ws", "bearer", "plain", _PLAIN),
    Who("ws", "basic", "owner"),
    Who("ws", "basic", "limited", _LIMITED),
    Who("ws", "basic", "plain", _PLAIN),
]

# Action, method, its params, and the rule that refuses it to those who are limited.
_MESSAGE: dict[str, Any] = {"to": "desk:1", "payload": {}}
ACTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("initialize", {"clientId": "guest:1"}, ALLOWED),
    ("initialize", {"clientId": "agent:bob"}, "client_ids"),
    ("initialize", {"clientId": "guest"}, "client_ids"),
    ("sendMessage", _MESSAGE, ALLOWED),
    ("sendMessage", _MESSAGE | {"from": "guest:1"}, ALLOWED),
    ("sendMessage", _MESSAGE | {"from": "as:another"}, ALLOWED),
    ("sendMessage", _MESSAGE | {"from": "agent:bob"}, "speak_as"),
    ("sendMessage", _MESSAGE | {"from": "guest:2"}, "speak_as"),
    ("sendMessage", _MESSAGE | {"to": "vault:1"}, "send_to"),
    ("sendMessage", _MESSAGE | {"to": "guest:9"}, "send_to"),
    ("subscribe", {"address": "guest:1"}, ALLOWED),
    ("subscribe", {"address": "exact:1"}, ALLOWED),
    ("subscribe", {"address": "news:1"}, ALLOWED),
    ("subscribe", {"address": "news:*"}, ALLOWED),
    ("subscribe", {"address": "news:a?*z"}, ALLOWED),
    ("subscribe", {"address": "guest:2"}, "subscribe"),
    ("subscribe", {"address": "exact:?"}, "subscribe"),
    ("subscribe", {"address": "new*"}, "subscribe"),
    ("subscribe", {"address": "*news:1"}, "subscribe"),
    ("subscribe", {"address": "*"}, "subscribe"),
]


def expected(who: Who, method: str, params: dict[str, Any], rule: str) -> tuple[int, str] | None:
    """Return the code and the rule of the refusal; None: it is allowed."""
    if who.grant == "grant.owner" or (rule == ALLOWED and who.grant != _PLAIN):
        return None
    if who.grant == _PLAIN:  # a token without a grant is a peer as any other, as itself
        if params.get("clientId") == "agent:bob":  # but it is not an agent
            return -32602, f"{_PLAIN}.client_ids"
        speaks_as_another = params.get("from", "guest:1") != "guest:1"
        return (-32602, f"{_PLAIN}.speak_as") if speaks_as_another else None
    return -32602, f"{who.grant}.{rule}"


@pytest.mark.parametrize("who", PEOPLE, ids=str)
def test_everybody_may_do_what_the_grants_say_and_else_hears_the_rule(
    who: Who, guarded: Guarded, opened: ExitStack
) -> None:
    for method, params, rule in ACTIONS:
        peer, more = who.open(guarded, opened)
        if method == "initialize":
            params = params | more
        else:
            peer.initialize("guest:1", **more)
        answer = peer.answer_to(peer.request(method, params))
        refusal = expected(who, method, params, rule)
        if refusal is None:
            assert "result" in answer, (method, params, answer)
        else:
            error = answer["error"]
            assert (error["code"], error["data"]["rule"]) == refusal, (method, params, answer)
        peer.close()


@pytest.mark.parametrize("who", [p for p in PEOPLE if p.token or isinstance(p.way, int)], ids=str)
def test_explain_names_the_rule_that_a_message_meets(who: Who, guarded: Guarded) -> None:
    about: Json = {"token": who.token} if who.token else {"uid": who.way}
    for method, params, rule in ACTIONS:
        if method == "subscribe":
            continue
        name = params.get("clientId", "guest:1")
        question = {"clientId": name, "from": name, "to": "desk:1"} | params
        question.pop("payload", None)
        found = as_owner(guarded.daemon, "bus.explain", question | about)
        refusal = expected(who, method, params, rule)
        assert found["allowed"] is (refusal is None), (question, found)
        if refusal is not None:
            assert found["rule"] == refusal[1], (question, found)


STRANGERS = [
    Who("unix", OTHER_GUEST),
    Who("unix", OTHER_GUEST, "busd_" + "a" * 43),
    Who("tcp", None),
    Who("tcp", "auth", "busd_" + "a" * 43),
    Who("tcp", "auth", "a"),
    Who("tcp", "auth", "a" * 10_000),
    Who("tcp", "auth", ""),
    Who("ws", None),
    Who("ws", "auth", "busd_" + "a" * 43),
    Who("ws", "bearer", "busd_" + "a" * 43),
    Who("ws", "bearer", "a"),
    Who("ws", "bearer", "a" * 5_000),
    Who("ws", "bearer", ""),
    Who("ws", "basic", "busd_" + "a" * 43),
]


@pytest.mark.parametrize("who", STRANGERS, ids=lambda who: str(who)[:30])
def test_a_stranger_is_not_let_in(who: Who, guarded: Guarded, opened: ExitStack) -> None:
    peer, more = who.open(guarded, opened)
    answer = peer.answer_to(peer.request("initialize", {"clientId": "guest:1", **more}))
    error = answer["error"]
    assert (error["code"], error["data"]["rule"]) == (-32005, "authentication")
    if who.token:
        assert error["message"] == "this token is not valid here"
    elif isinstance(who.way, int):
        assert error["message"] == f"there is no grant for uid {who.way}"
    else:
        assert error["message"] == "a token is needed here (auth.token, or Authorization: Bearer)"
    assert error_of(peer, "sendMessage", _MESSAGE) == (-32001, "initialize.first")


def test_a_header_that_is_no_text_is_a_wrong_token(guarded: Guarded, opened: ExitStack) -> None:
    for header in ("Authorization: Bearer \xff\xfe", "Authorization: Basic !", "Authorization: x"):
        peer = open_with_header(guarded.daemon, header, opened)
        assert error_of(peer, "initialize", {"clientId": "guest:1"})[0] in (-32005, -32004)


def test_explain_says_that_a_stranger_is_not_let_in(guarded: Guarded) -> None:
    question = {"clientId": "guest:1", "from": "guest:1", "to": "desk:1"}
    strangers: list[Json] = [{"uid": OTHER_GUEST}, {"token": "unknown"}, {"unit": "x.service"}]
    for stranger in strangers:
        found = as_owner(guarded.daemon, "bus.explain", question | stranger)
        assert (found["allowed"], found["rule"]) == (False, "authentication")
