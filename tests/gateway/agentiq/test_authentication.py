"""Who a client is: proved by a token in its messages, which is never kept."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import Answer, Authenticate, Close, Enter, Leave, Say
from tests.gateway.agentiq.asking import ask, connect, errors, texts, user_message
from tests.gateway.stage.line import Frame, Line, given

SECRET = "s3cr3t-token"
TOKENS = {SECRET: "ann", "dora's": "dora"}


def unknown() -> Line:
    """Return the line of a client that has not proved who it is."""
    return connect(user="", tokens=TOKENS)


def auth_message(**payload: str) -> Frame:
    return {"type": "auth_message", "payload": payload, "timestamp": "2025-01-13T10:00:00Z"}


def test_nothing_is_entered_before_a_client_is_known() -> None:
    line = unknown()
    assert (line.effects, line.closed) == ([], None)
    frames = ask(line)
    assert errors(frames) == [("user_auth_error", "unauthenticated")]
    assert texts(frames) == [None]
    assert line.asked_for(Say) == line.asked_for(Close) == []


@pytest.mark.parametrize(
    "payload",
    [
        {"method": "jwt", "token": SECRET},
        {"method": "api_key", "token": SECRET},
        {"method": "basic", "username": "ann", "password": SECRET},
        {"token": SECRET},
        {"api_key": SECRET},
    ],
)
def test_an_auth_message_proves_who_the_client_is(payload: dict[str, str]) -> None:
    line = unknown()
    [frame] = line.send(auth_message(**payload))
    assert frame == {
        "type": "auth_response_message",
        "status": "success",
        "user_id": "ann",
        "payload": None,
        "timestamp": frame["timestamp"],
    }
    assert [each.conversation for each in line.asked_for(Enter)] == ["c1"], "that of the URL"
    assert ask(line) == []


@pytest.mark.parametrize(
    ("payload", "details"),
    [
        (
            {"method": "jwt", "token": "wrong"},
            "this token is unknown; ask the owner of the bus for one",
        ),
        ({"method": "jwt"}, "payload.token: missing, or not a string"),
        ({"method": "basic", "username": "ann"}, "payload.password: missing, or not a string"),
        ({"method": "jwt", "token": 7}, "payload.token: missing, or not a string"),
        ("token", "payload: missing, or not an object"),
        (None, "payload: missing, or not an object"),
    ],
)
def test_a_failed_authentication_is_answered_as_the_toolkit_does(
    payload: Any, details: str
) -> None:
    line = unknown()
    [frame] = line.send({"type": "auth_message", "payload": payload})
    assert frame == {
        "type": "auth_response_message",
        "status": "error",
        "user_id": None,
        "payload": {
            "code": "user_auth_error",
            "message": "Authentication failed",
            "details": details,
        },
        "timestamp": frame["timestamp"],
    }
    assert line.send(auth_message(method="jwt", token=SECRET))[0]["status"] == "success"


@pytest.mark.parametrize("member", ["api_key", "token"])
def test_a_token_in_a_message_proves_who_the_client_is(member: str) -> None:
    line = unknown()
    assert ask(line, security={member: SECRET}) == []
    [say] = line.asked_for(Say)
    assert say.entry.author.id == "ann"
    assert ask(line, message_id="m2") == []
    assert len(line.asked_for(Authenticate)) == 1


def test_a_wrong_token_in_a_message_is_an_error() -> None:
    line = unknown()
    frames = ask(line, security={"token": "wrong"})
    assert errors(frames) == [("user_auth_error", "authentication")]
    assert texts(frames) == [None]
    assert line.asked_for(Enter) == []


def test_a_client_that_is_known_needs_no_token() -> None:
    line = connect(tokens=TOKENS)
    assert ask(line, security={"token": "of some other service"}) == []
    assert line.asked_for(Authenticate) == []


def test_a_client_that_becomes_another_user_leaves_its_conversations() -> None:
    line = connect(tokens=TOKENS)
    line.send(auth_message(method="jwt", token="dora's"))
    ask(line)
    assert [each.conversation for each in line.asked_for(Leave)] == ["c1"]
    assert [each.author.id for each in line.asked_for(Enter)] == ["ann", "dora"]
    assert line.asked_for(Say)[0].entry.author.id == "dora"


def test_no_secret_is_kept_or_sent() -> None:
    line = unknown()
    security = {"token": SECRET, "api_key": SECRET, "more": {"password": SECRET}}
    secrets: dict[str, Any] = {
        "security": security,
        "token": SECRET,
        "Api_Key": SECRET,
        "Authorization": SECRET,
    }
    secrets["user"] = {"name": "ann", "token": SECRET}
    secrets["payload"] = {"method": "jwt", "Token": SECRET, "user": {"password": SECRET}}
    line.send({**user_message(), **secrets})
    line.ask(input_type="text", text="Why?")
    line.send(
        {**user_message("so"), "type": "user_interaction_message", "parent_id": "m1", **secrets}
    )
    line.send(auth_message(method="jwt", token=SECRET))
    line.send({**user_message(), **secrets, "content": 7})
    kept = [each.entry for each in line.asked_for(Say) + line.asked_for(Answer)]
    assert len(kept) == 2
    assert [set(given(each.original)) for each in kept] == [
        {"type", "id", "content", "user", "payload"},
        {"type", "id", "content", "parent_id", "user", "payload"},
    ]
    assert [given(each.metadata) for each in kept] == [{"user": {"name": "ann"}}] * 2
    assert SECRET not in f"{line.frames}{kept}{line.effects}"
