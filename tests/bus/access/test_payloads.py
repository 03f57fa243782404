"""Payloads: a peer with limited grants cannot say in them what it may not say beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from busd_plugins.bub.chats import Chat
from tests.bus.access.guarded import (
    Grants,
    error_of,
    join_with,
    new_token,
    open_guarded,
    owner_token,
)
from tests.daemons import Daemon, Loop
from tests.plugins.bub.bridges import light_workers
from tests.wire_peers import Peer

WORKER = Chat("telegram", "1").agent_id
RULE = "grant.discord bridge.speak_as"
GRANTS: Grants = [
    {
        "name": "discord bridge",
        "token": "discord",
        "client_ids": ["discord-bridge"],
        "speak_as": ["client-*", "discord:*"],
        "send_to": ["system:*", "agent:*"],
        "subscribe": ["discord:*"],
    },
    {"name": "boss", "token": "boss", "client_ids": ["boss:*"], "speak_as": ["*"]},
    {"name": "system", "token": "system", "client_ids": ["*", "agent:system", "system:*"]},
]


class Bus(NamedTuple):
    daemon: Daemon
    tokens: dict[str, str]


@pytest.fixture(scope="module")
def bus(loop: Loop) -> Iterator[Bus]:
    with open_guarded(loop, GRANTS, light_workers()) as daemon:
        names = ("discord", "boss", "system", "plain")
        tokens = {name: new_token(daemon, name) for name in names}
        yield Bus(daemon, {**tokens, "owner": owner_token(daemon)})


def message(kind: object, to: str, said_by: object = None, **content: Any) -> dict[str, Any]:
    payload = {"type": kind, "content": content}
    return {"to": to, "payload": payload if said_by is None else payload | {"from": said_by}}


@pytest.fixture
def bridge(bus: Bus, opened: ExitStack) -> Peer:
    return join_with(bus.daemon, "tcp", bus.tokens["discord"], "discord-bridge", opened)


@pytest.mark.parametrize("said_by", ["tg:1", "agent:system", WORKER])
def test_a_bridge_cannot_configure_the_agent_of_a_chat_that_it_may_not_speak_as(
    bus: Bus, bridge: Peer, opened: ExitStack, said_by: str
) -> None:
    agent = join_with(bus.daemon, "tcp", bus.tokens["owner"], "agent:standing-in", opened)
    forged = message("configure", "agent:standing-in", said_by, talkto="discord:1")
    assert error_of(bridge, "sendMessage", forged) == (-32602, RULE)
    assert error_of(bridge, "sendMessage", forged | {"from": "client-1"}) == (-32602, RULE)
    agent.expect_nothing()


def test_a_bridge_cannot_have_the_system_agent_write_to_whom_it_may_not_speak_as(
    bus: Bus, bridge: Peer, opened: ExitStack
) -> None:
    victim = join_with(bus.daemon, "tcp", bus.tokens["owner"], "tg:77", opened)
    forged = message("spawn_request", "system:spawn", "tg:77", chat_id="!", channel="!")
    assert error_of(bridge, "sendMessage", forged) == (-32602, RULE)
    victim.expect_nothing()
    own = message("spawn_request", "system:spawn", "discord:5", chat_id="5", channel="!")
    bridge.call("subscribe", {"address": "discord:5"})
    sent = bridge.send_message("system:spawn", own["payload"])
    told = bridge.next_message()
    assert (told["params"]["to"], told["params"]["payload"]["type"]) == (
        "discord:5",
        "spawn_result",
    )
    bridge.answer(told, {"success": True})
    assert "result" in bridge.answer_to(sent)


def test_a_bridge_cannot_speak_in_a_chat_that_only_the_content_names(
    bus: Bus, bridge: Peer, opened: ExitStack
) -> None:
    agent = join_with(bus.daemon, "tcp", bus.tokens["owner"], "agent:chatting", opened)
    chat = {"channel": "telegram", "chat_id": 1}
    for to in ("system:route", "agent:chatting"):
        words = message("tg_message", to, text="hi", **chat)
        assert error_of(bridge, "sendMessage", words) == (-32602, RULE)
        event = message("agent_event", to, event="turn.cancel", data=chat)
        assert error_of(bridge, "sendMessage", event) == (-32602, RULE)
    agent.expect_nothing()
    own = {"channel": "discord", "chat_id": "5"}
    bridge.call("sendMessage", message("tg_message", "agent:nobody", text="hi", **own))
    bridge.call("sendMessage", message("agent_event", "agent:nobody", event="x", data=own))


def test_a_payload_is_from_whom_its_sender_may_speak_as(bridge: Peer) -> None:
    for said_by in (None, "", "discord-bridge", "discord:9", "client-1"):
        bridge.call("sendMessage", message("hello", "agent:nobody", said_by))


def test_a_payload_that_cannot_be_read_is_refused_and_one_without_a_type_is_not(
    bridge: Peer,
) -> None:
    for kind in (5, ["configure"], {"a": 1}):
        unreadable = message(kind, "agent:nobody")
        assert error_of(bridge, "sendMessage", unreadable) == (-32602, "params")
    assert error_of(bridge, "sendMessage", message("x", "agent:nobody", 5)) == (-32602, "params")
    for no_type in (None, ""):
        bridge.call("sendMessage", message(no_type, "agent:nobody"))
    bridge.call("sendMessage", {"to": "agent:nobody", "payload": {}})


def test_who_may_speak_as_anybody_may_do_so_in_payloads(bus: Bus, opened: ExitStack) -> None:
    boss = join_with(bus.daemon, "tcp", bus.tokens["boss"], "boss:1", opened)
    boss.call("sendMessage", message("configure", "agent:nobody", "tg:1"))
    boss.call("sendMessage", message(5, "agent:nobody"))


@pytest.mark.parametrize("name", ["agent:system", "system:events", "plugin:bub"])
@pytest.mark.parametrize("token", ["plain", "owner"])
def test_nobody_takes_a_name_of_the_bus_itself(
    bus: Bus, opened: ExitStack, token: str, name: str
) -> None:
    with pytest.raises(AssertionError, match=f"may not be {name}; only a \\[\\[grant\\]\\] whose"):
        join_with(bus.daemon, "tcp", bus.tokens[token], name, opened)


@pytest.mark.parametrize("name", ["agent:system", "system:events"])
def test_a_grant_that_spells_a_name_of_the_bus_gives_it(
    bus: Bus, opened: ExitStack, name: str
) -> None:
    join_with(bus.daemon, "tcp", bus.tokens["system"], name, opened)
    with pytest.raises(AssertionError, match=r"may not be plugin:bub"):
        join_with(bus.daemon, "tcp", bus.tokens["system"], "plugin:bub", opened)


def test_a_token_without_a_grant_may_not_be_an_agent(bus: Bus, opened: ExitStack) -> None:
    with pytest.raises(AssertionError, match=r"token plain may not be agent:bob"):
        join_with(bus.daemon, "tcp", bus.tokens["plain"], "agent:bob", opened)
    join_with(bus.daemon, "tcp", bus.tokens["plain"], "agents", opened)
