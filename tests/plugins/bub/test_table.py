"""Who may send what: the table of the protocol."""

from __future__ import annotations

import pytest

from busd_plugins.bub.chats import refusal_of

TYPES = (
    "spawn_request",
    "configure",
    "tg_message",
    "spawn_result",
    "route_assigned",
    "agent_event",
    "tg_reply",
    "general_response",
)
BRIDGE = {"spawn_request", "configure", "tg_message", "agent_event", "general_response"}
SYSTEM = {"spawn_result", "route_assigned", "agent_event", "general_response"}
AGENT = {"tg_reply", "agent_event", "general_response"}


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize(
    ("sender", "allowed"),
    [
        ("tg:1", BRIDGE),
        ("telegram-bridge", BRIDGE),
        ("agent:system", SYSTEM),
        ("system:events", SYSTEM),
        ("agent:worker-1", AGENT),
        ("agent:systems", AGENT),
    ],
)
def test_each_kind_of_sender_has_its_types(sender: str, allowed: set[str], type_name: str) -> None:
    assert (refusal_of(sender, type_name) is None) == (type_name in allowed)


def test_a_refusal_says_who_and_what() -> None:
    assert refusal_of("agent:x", "spawn_request") == (
        "an agent like agent:x may not send spawn_request,"
        " only agent_event, general_response, tg_reply"
    )


def test_types_of_others_are_free() -> None:
    assert refusal_of("agent:x", "hello") is None
