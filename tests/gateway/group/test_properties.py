"""Whatever clients send: no member is lost, nothing raises, and what comes out is strict JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from busd_plugins.group.messages import TYPES
from tests.gateway.group.hall import Hall, Json
from tests.gateway.group.said import LI, ZHANG, message

UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
texts = st.text(max_size=8)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
# No words that have a meaning in this format.
unknown = texts.filter(lambda name: name.isascii() is False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(unknown, inner, max_size=4),
    max_leaves=12,
)
KEPT = [
    *("chat", "image", "file", "voice", "rich_text", "markdown", "task", "poll", "decision"),
    *("handoff", "error", "status", "settings"),
]


@given(
    st.sampled_from(KEPT),
    texts,
    st.dictionaries(unknown, values),
    st.dictionaries(unknown, values),
    st.dictionaries(unknown, values),
)
def test_no_member_is_lost(kind: str, text: str, more: Json, beside: Json, about: Json) -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    sender = {**ZHANG, "头像": [1]}
    frame = {**message(kind, text, sender=sender, **more), **beside, "metadata": about}
    client.send(frame)
    for seen in (client.frames[1], other.frames[1], hall.open().frames[1 - 2 - len(hall.turns)]):
        assert seen["sender"] == sender
        assert seen["payload"]["text"] == text
        assert {name: seen["payload"][name] for name in more} == more
        assert {name: seen[name] for name in beside} == beside
        assert seen["metadata"] == about


members = st.fixed_dictionaries(
    {},
    optional={
        name: values
        | st.just({"id": "a", "type": "agent"})
        | st.just([{"id": "a", "type": "agent"}])
        | st.sampled_from(["p", "t", "海边", "m1", "pending", "closed", "<b>x", "@agent:a @张三"])
        for name in (
            *("text", "group_id", "reply_to", "mentions", "attachments", "html_content", "format"),
            *("task_id", "poll_id", "decision_id", "assignees", "status", "progress", "options"),
            *("vote", "votes", "result", "update_history", "message_ids", "message_id", "query"),
            *("subject", "is_typing", "event_type", "auth_token", "history", "features", "to"),
            *("url", "name", "size", "multiple", "thread_id", "last_message_id", "confidence"),
        )
    },
)
frames = st.fixed_dictionaries(
    {"message_type": st.sampled_from(TYPES), "payload": members},
    optional={
        "sender": st.sampled_from([ZHANG, LI, {"id": 5}]) | values,
        "message_id": texts | values,
        "timestamp": st.sampled_from(["2023-11-01T12:00:00+08:00", 0]) | values,
        "metadata": values,
    },
)


@given(st.lists(frames, max_size=8))
def test_nothing_that_clients_send_is_too_strange(sent: list[Json]) -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message("task", "做", task_id="t"))
    client.send(message("poll", "去哪儿？", poll_id="p", options=["海边", "山上"]))
    hall.ask("checkbox", "要什么？", "海边", "午餐")
    for frame in sent:
        client.send(frame)
    later = hall.open()
    for seen in [*client.frames, *other.frames, *later.frames]:
        check_sent(seen)


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    client = Hall().open()
    client.send(text)
    for seen in client.frames:
        check_sent(seen)


def check_sent(frame: Any) -> None:
    """Check what holds for all that is sent."""
    json.loads(json.dumps(frame), parse_constant=never)
    assert frame["message_type"] in TYPES
    assert UTC.fullmatch(frame["timestamp"])
    assert isinstance(frame["message_id"], str)
    assert frame["message_id"]
    assert isinstance(frame["payload"], dict)
    assert isinstance(frame["metadata"], dict)
    assert frame["sender"]["type"] in ("user", "agent", "system")
    assert all(isinstance(frame["sender"][name], str) for name in ("id", "name"))
    if frame["message_type"] == "error" and "group_id" not in frame["payload"]:
        assert frame["error"]["code"] == frame["payload"]["code"]


def never(constant: str) -> None:
    raise AssertionError(constant)
