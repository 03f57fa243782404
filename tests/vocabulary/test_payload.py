"""Payloads: read and written by structs that name their type, with the protocol's spelling."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec import Raw

from busd import (
    AgentEvent,
    Configure,
    GeneralResponse,
    Refuse,
    RouteAssigned,
    SpawnRequest,
    SpawnResult,
    TgMessage,
    TgReply,
    message,
    read_message,
    write_message,
)
from busd.vocabulary.bub import BUB_TYPES
from busd.vocabulary.payload import type_name_of, type_of


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


@message("sample")
class Sample(msgspec.Struct):
    text: str


def test_a_struct_is_written_as_the_content_of_a_payload() -> None:
    payload = json.loads(bytes(write_message(Sample("hi"), sender="tg:1", timestamp="T")))
    assert payload == {
        "type": "sample",
        "from": "tg:1",
        "timestamp": "T",
        "content": {"text": "hi"},
    }
    assert json.loads(bytes(write_message(Sample("x"), message_id="m")))["messageId"] == "m"


def test_the_time_is_utc_and_ends_in_z() -> None:
    payload = json.loads(bytes(write_message(Sample("hi"))))
    assert payload["timestamp"].endswith("Z")
    assert "from" not in payload


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"content": {"text": 5}}, "sample: content.text: Expected `str`, got `int`"),
        ({"content": {}}, "sample: content: Object missing required field `text`"),
        ({"content": []}, "sample: content: Expected `object`, got `array`"),
        ({}, "sample: content: Object missing required field `text`"),
        ({"content": {"text": "x"}, "type": 5}, "sample: content.type: Expected `str`, got `int`"),
    ],
)
def test_what_does_not_fit_is_refused_naming_type_and_member(payload: object, reason: str) -> None:
    with pytest.raises(Refuse) as refused:
        read_message(raw(payload), Sample)
    assert refused.value.reason == reason


@pytest.mark.parametrize("text", [b"{", b'{"content":}', b"[" * 100_000])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(Refuse, match="sample: "):
        read_message(Raw(text), Sample)
    assert type_of(Raw(text)) == ""


def test_a_struct_without_a_type_is_no_message() -> None:
    class Plain(msgspec.Struct):
        text: str

    with pytest.raises(TypeError, match="Plain has no @message type"):
        write_message(Plain("x"))
    with pytest.raises(TypeError, match="stands above"):
        message("x")(dict)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="has a name"):
        message("")


def test_a_type_is_not_inherited_by_other_structs() -> None:
    class More(Sample):
        more: str = ""

    assert type_name_of(Sample) == "sample"
    assert type_name_of(More) == ""


def test_there_are_the_eight_types_of_the_protocol() -> None:
    assert [type_name_of(kind) for kind in BUB_TYPES] == [
        "spawn_request",
        "spawn_result",
        "tg_message",
        "tg_reply",
        "general_response",
        "configure",
        "route_assigned",
        "agent_event",
    ]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (
            SpawnRequest("1", "telegram", "telegram"),
            {"chat_id": "1", "channel": "telegram", "channel_type": "telegram"},
        ),
        (
            SpawnResult(True, "agent:w", "running"),
            {"success": True, "client_id": "agent:w", "status": "running"},
        ),
        (SpawnResult(False, error="no"), {"success": False, "error": "no"}),
        (
            TgMessage("hi", senderId="7", channel="telegram", username="u", full_name="U N"),
            {
                "text": "hi",
                "senderId": "7",
                "channel": "telegram",
                "username": "u",
                "full_name": "U N",
            },
        ),
        (GeneralResponse("ok", "done"), {"status": "ok", "message": "done"}),
        (Configure("tg:1"), {"talkto": "tg:1"}),
        (RouteAssigned("1", "agent:w"), {"chat_id": "1", "agent_id": "agent:w"}),
        (AgentEvent("spawned", raw({"a": 1})), {"event": "spawned", "data": {"a": 1}}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_type_has_the_protocols_spelling_and_comes_back_as_it_was(
    value: msgspec.Struct, content: dict[str, object]
) -> None:
    written = write_message(value)
    payload = json.loads(bytes(written))
    assert (payload["type"], payload["content"]) == (type_name_of(type(value)), content)
    assert msgspec.json.encode(read_message(written, type(value))) == msgspec.json.encode(value)


def test_a_reply_has_its_chat_beside_its_content_and_is_read_from_either_place() -> None:
    reply = TgReply("hi", reply_to_message_id="5", chat_id="1")
    payload = json.loads(bytes(write_message(reply)))
    assert payload["content"] == {"text": "hi"}
    assert (payload["reply_to_message_id"], payload["chat_id"]) == ("5", "1")
    inside = {"text": "hi", "reply_to_message_id": "5", "chat_id": "1"}
    assert read_message(raw({"type": "tg_reply", "content": inside}), TgReply) == reply
    assert read_message(raw(payload), TgReply) == reply


def test_unknown_members_are_no_mistake() -> None:
    payload = {"type": "tg_message", "x": 1, "content": {"text": "hi", "y": 2}}
    assert read_message(raw(payload), TgMessage) == TgMessage("hi")


# What existing peers send


def test_null_is_the_same_as_absent_in_every_optional_member_of_every_type() -> None:
    for kind in BUB_TYPES:
        fields = msgspec.structs.fields(kind)
        required = {
            field.encode_name: _SAMPLES[field.encode_name] for field in fields if field.required
        }
        nulls = {field.encode_name: None for field in fields if not field.required}
        envelope = {"type": type_name_of(kind), "content": required}
        more = {"from": None, "timestamp": None, "messageId": None}
        bare = read_message(raw(envelope), kind)
        assert read_message(raw(envelope | more | {"content": required | nulls}), kind) == bare


def test_a_null_type_is_no_type() -> None:
    assert type_of(raw({"type": None, "content": None})) == ""


@pytest.mark.parametrize("chat_id", [555, -1001234567890, "555"])
def test_ids_are_texts_or_numbers_and_leave_as_they_came(chat_id: str | int) -> None:
    content = {"text": "hi", "senderId": chat_id, "chat_id": chat_id}
    words = read_message(raw({"content": content}), TgMessage)
    assert (words.senderId, words.chat_id) == (chat_id, chat_id)
    reply = TgReply("hi", reply_to_message_id=chat_id, chat_id=chat_id)
    written = json.loads(bytes(write_message(reply)))
    assert (written["reply_to_message_id"], written["chat_id"]) == (chat_id, chat_id)
    assert read_message(raw(written), TgReply) == reply


_SAMPLES: dict[str, object] = {
    "chat_id": "1",
    "channel": "telegram",
    "channel_type": "telegram",
    "success": True,
    "text": "hi",
    "status": "ok",
    "agent_id": "agent:x",
    "event": "turn.cancel",
}
