"""The five public functions that convert messages between the two spellings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from busd_plugins.tkr import (
    is_legacy_format,
    is_standard_format,
    legacy_to_standard,
    normalize_message,
    standard_to_legacy,
)
from busd_plugins.tkr.adapters import LEGACY_NAMES, STANDARD_NAMES
from tests.gateway.tkr.spelled import Message, any_messages, standard_messages

LEGACY = {
    "id": "m1",
    "sessionId": "s1",
    "type": "text",
    "text": "hello",
    "fromUser": True,
    "toAgent": "rita",
    "timestamp": "2026-01-31T12:00:00Z",
}
STANDARD = {
    "id": "m1",
    "session_id": "s1",
    "type": "text",
    "content": "hello",
    "from_user": True,
    "to_agent": "rita",
    "timestamp": "2026-01-31T12:00:00Z",
}
PAIRS = [
    ("session_id", "s1"),
    ("from_agent", "rita"),
    ("to_agent", "phil"),
    ("from_user", True),
    ("in_reply_to", "m0"),
    ("turn_complete", False),
    ("context_id", "c1"),
    ("context_data", {"city": "Ulm"}),
    ("target_agents", ["phil"]),
    ("task_id", "t1"),
    ("error_code", "E1"),
    ("error_details", {"line": 3}),
]


def test_the_session_and_an_id_tell_the_spelling() -> None:
    assert is_legacy_format(LEGACY)
    assert not is_standard_format(LEGACY)
    assert is_standard_format(STANDARD)
    assert not is_legacy_format(STANDARD)


def test_a_message_without_session_or_without_id_is_of_neither_spelling() -> None:
    for message in ({"id": "m1", "text": "hello"}, {"sessionId": "s1", "session_id": "s1"}):
        assert not is_legacy_format(message)
        assert not is_standard_format(message)


def test_a_message_of_both_spellings_is_legacy() -> None:
    both: Message = {**STANDARD, **LEGACY, "content": "hello"}
    assert is_legacy_format(both)
    assert normalize_message(both) == STANDARD


def test_legacy_becomes_standard_and_standard_legacy() -> None:
    assert legacy_to_standard(LEGACY) == STANDARD
    assert standard_to_legacy(STANDARD) == {**LEGACY, "content": "hello"}


@pytest.mark.parametrize(("name", "value"), PAIRS, ids=[name for name, _ in PAIRS])
def test_a_member_has_one_name_in_each_spelling(name: str, value: Any) -> None:
    standard = {"id": "m1", "type": "system", "timestamp": "2026-01-31T12:00:00Z", name: value}
    legacy = standard_to_legacy({"session_id": "s1", **standard})
    assert legacy[LEGACY_NAMES[name]] == value
    assert name not in legacy
    assert legacy_to_standard(legacy)[name] == value


def test_content_has_precedence_over_text() -> None:
    standard = legacy_to_standard({**LEGACY, "content": "from content", "text": "from text"})
    assert standard["content"] == "from content"


def test_a_null_content_gives_way_to_the_text() -> None:
    assert legacy_to_standard({**LEGACY, "content": None})["content"] == "hello"


def test_a_message_without_a_sender_is_a_users() -> None:
    message = {name: value for name, value in LEGACY.items() if name != "fromUser"}
    assert legacy_to_standard(message)["from_user"] is True


def test_a_message_of_an_agent_is_no_users() -> None:
    message = {"id": "m1", "sessionId": "s1", "fromAgent": "rita", "text": "hello"}
    standard = legacy_to_standard(message)
    assert standard["from_agent"] == "rita"
    assert "from_user" not in standard


def test_a_user_may_have_a_name() -> None:
    assert legacy_to_standard({**LEGACY, "fromUser": "ann"})["from_user"] == "ann"


def test_only_a_string_is_also_written_as_text() -> None:
    legacy = standard_to_legacy({**STANDARD, "content": {"city": "Ulm"}})
    assert legacy["content"] == {"city": "Ulm"}
    assert "text" not in legacy


def test_a_turn_that_is_not_complete_stays_incomplete() -> None:
    streaming = {"id": "m1", "sessionId": "s1", "fromAgent": "rita", "text": "par"}
    standard = legacy_to_standard({**streaming, "streaming": True, "turnComplete": False})
    assert standard["streaming"] is True
    assert standard["turn_complete"] is False
    assert standard_to_legacy(standard)["turnComplete"] is False


def test_an_agents_message_keeps_its_task() -> None:
    message = {"id": "m1", "sessionId": "s1", "type": "agent_message", "taskId": "t1"}
    assert legacy_to_standard(message)["task_id"] == "t1"


def test_a_missing_timestamp_is_the_present_time() -> None:
    legacy = standard_to_legacy({"id": "m1", "type": "text", "session_id": "s1", "content": "x"})
    assert legacy["timestamp"].endswith("Z")


def test_of_two_spellings_that_differ_the_legacy_one_counts_unless_it_is_empty() -> None:
    both = {"id": "m1", "sessionId": "a", "session_id": "b", "toAgent": "", "to_agent": "rita"}
    standard = normalize_message(both)
    assert standard["session_id"] == "a"
    assert standard["to_agent"] == "rita"


def test_a_message_of_neither_spelling_gets_what_is_missing() -> None:
    normal = normalize_message({"id": "m1", "text": "hello"})
    assert normal.pop("timestamp").endswith("Z")
    assert normal == {"id": "m1", "session_id": "default", "type": "text", "content": "hello"}


def test_a_message_without_anything_to_say_gets_an_empty_content() -> None:
    normal = normalize_message({"type": "ping"})
    assert normal["content"] == ""
    assert normal["id"].startswith("msg_")


def test_a_message_of_neither_spelling_keeps_what_else_it_has() -> None:
    normal = normalize_message({"text": "hello", "fromAgent": "rita", "colour": "red"})
    assert normal["from_agent"] == "rita"
    assert normal["colour"] == "red"


def test_a_message_of_the_standard_spelling_is_returned_as_it_is() -> None:
    assert normalize_message(STANDARD) is STANDARD


def test_a_legacy_message_without_an_id_gets_one() -> None:
    normal = normalize_message({"sessionId": "s1", "text": "hello"})
    assert normal["id"].startswith("msg_")
    assert normal["session_id"] == "s1"


@pytest.mark.parametrize(
    ("message", "fault"),
    [(None, ValueError), ({}, ValueError), ("hello", TypeError), ([], TypeError)],
)
def test_what_is_no_message_is_refused(message: Any, fault: type[Exception]) -> None:
    with pytest.raises(fault, match="message"):
        normalize_message(message)


def test_what_is_converted_is_not_changed() -> None:
    legacy, standard = dict(LEGACY), dict(STANDARD)
    legacy_to_standard(legacy)
    standard_to_legacy(standard)
    assert (legacy, standard) == (LEGACY, STANDARD)


@given(standard_messages())
def test_standard_to_legacy_to_standard_is_the_same_again(message: Message) -> None:
    assert legacy_to_standard(standard_to_legacy(message)) == message


@given(any_messages())
def test_no_member_is_lost(message: Message) -> None:
    for converted in (legacy_to_standard(message), standard_to_legacy(message)):
        for name, value in message.items():
            assert _found(name, value, message, converted), (name, converted)


@given(any_messages())
def test_every_message_is_complete_in_the_spelling_it_is_converted_to(message: Message) -> None:
    assert is_standard_format(legacy_to_standard(message))
    assert is_legacy_format(standard_to_legacy(message))
    if message:
        assert is_standard_format(normalize_message(message)) or is_standard_format(message)


def _found(name: str, value: Any, message: Message, converted: Message) -> bool:
    """Whether a member is there: under either name, or its place was taken for a reason."""
    other = LEGACY_NAMES.get(name) or STANDARD_NAMES.get(name) or name
    is_twice = other != name and other in message and message[other] != value
    is_filled = value in (None, "") and converted.get(name, converted.get(other)) is not None
    if name == "text" and converted.get("content") == value:
        return True
    return is_twice or is_filled or value in (converted.get(name), converted.get(other))
