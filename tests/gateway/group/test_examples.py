"""Messages as the format's document shows them: with its comments, ids that are no UUIDs, and all
members. What a client is to send goes in as it stands, and comes out with all its members; what a
server sends is compared with what the dialect sends.
"""

from __future__ import annotations

import pytest

from busd.gateway import Authenticate, Author, ChangeTask, Enter, Post, Say, parse_lenient
from busd_plugins.group.messages import TYPES
from tests.gateway.group.hall import Hall, Json
from tests.gateway.group.said import error_of, message, of_type

BASE = """{
  "message_id": "uuid-string",        // 每条消息都不同
  "message_type": "string",           // 类型
  "sender": {                         // 谁
    "id": "string",                   // 编号
    "type": "user|agent|system",      // 哪一种
    "name": "string"                  // 名字
  },
  "timestamp": "iso-datetime-string", // 时间 (ISO 8601)
  "payload": {},                      // 内容
  "metadata": {}                      // 可选
}"""
CHAT = """{
  "message_id": "msg55501",
  "message_type": "chat",
  "sender": {"id": "user123", "type": "user", "name": "张三"},
  "timestamp": "2023-11-01T12:34:56.789Z",
  "payload": {
    "text": "早上好，船几点开",
    "group_id": "group123",
    "reply_to": "msg55500",  // 可选，看 http://a.example 的说明
    "mentions": [            // 可选
      {"id": "user124", "type": "user", "name": "李四"},
      {"id": "agent77", "type": "agent", "name": "船长Bot"},
    ]
  },
  "metadata": {"client_id": "web-1", "is_edited": false, "tags": ["sea"]}
}"""
RESPONSE = """{
  "message_id": "msg55502",
  "message_type": "agent_response",
  "sender": {"id": "agent77", "type": "agent", "name": "船长Bot"},
  "timestamp": "2023-11-01T12:35:10.123Z",
  "payload": {
    "text": "九点开船。",
    "group_id": "group123",
    "reply_to": "msg55501",  // 回复哪一条
    "confidence": 0.75,      // 可选
    "thinking": "在问时间", // 可选
    "sources": []            // 可选
  },
  "metadata": {"model": "m-1", "tokens_used": 8, "response_time_ms": 90}
}"""
SYSTEM = """{
  "message_id": "msg55503",
  "message_type": "system",
  "sender": {"id": "system", "type": "system", "name": "系统"},
  "timestamp": "2023-11-01T12:36:00.000Z",
  "payload": {
    "text": "李四来了",
    "group_id": "group123",
    "event_type": "member_joined", // 发生了什么
    "subject": {"id": "user124", "type": "user", "name": "李四"}  // 谁
  },
  "metadata": {"importance": "normal"}
}"""
TASK = """{
  "message_id": "msg55504",
  "message_type": "task",
  "sender": {"id": "user123", "type": "user", "name": "张三"},
  "timestamp": "2023-11-01T13:00:00.000Z",
  "payload": {
    "text": "把潮汐表做成图",
    "group_id": "group123",
    "task_id": "task55",
    "task_type": "chart",
    "assignees": [{"id": "agent77", "type": "agent", "name": "船长Bot"}],
    "due_date": "2023-11-02T18:00:00.000Z",
    "priority": "high",
    "attachments": [
      {"id": "f9", "name": "t.csv", "type": "csv", "size": 7, "url": "https://f.example/t.csv"}
    ]
  },
  "metadata": {"workflow_id": "w5", "tags": ["chart"]}
}"""
RICH_TEXT = """{
  "message_id": "msg55505",
  "message_type": "rich_text",
  "sender": {"id": "agent77", "type": "agent", "name": "船长Bot"},
  "timestamp": "2023-11-01T13:10:00.000Z",
  "payload": {
    "text": "图在下面",
    "group_id": "group123",
    "html_content": "<div><h1>潮汐</h1><p>高潮……</p><ul><li>14:10</li></ul></div>",
    "reply_to": "msg55504"  // 哪一个任务
  },
  "metadata": {"render_mode": "html", "version": "1.0"}
}"""
ERROR = """{
  "message_id": "msg55506",
  "message_type": "error",
  "sender": {"id": "system", "type": "system", "name": "系统"},
  "timestamp": "2023-11-01T13:15:00.000Z",
  "payload": {
    "code": "auth_failed",
    "text": "请重新登录",
    "severity": "error",
    "details": "expired"
  },
  "metadata": {"client_id": "web-1", "request_id": "req5"}
}"""
CONNECT = """{
  "message_id": "conn555",
  "message_type": "connect",
  "sender": {"id": "user123", "type": "user", "name": "张三"},
  "timestamp": "2023-11-01T13:30:00.000Z",
  "payload": {
    "client_info": {"platform": "web", "browser": "chrome", "version": "88.0"},
    "auth_token": "令牌-张三"
  },
  "metadata": {"protocol_version": "1.0"}
}"""
CONNECT_ACK = """{
  "message_id": "ack555",
  "message_type": "connect_ack",
  "sender": {"id": "system", "type": "system", "name": "系统"},
  "timestamp": "2023-11-01T13:30:01.000Z",
  "payload": {
    "session_id": "session789",
    "server_info": {"version": "1.0.0", "features": ["typing_indicators", "read_receipts"]},
    "user_info": {
      "id": "user123", "name": "张三", "permissions": ["read", "write", "create_group"]
    }
  },
  "metadata": {"protocol_version": "1.0"}
}"""
KEPT = {"chat": CHAT, "agent_response": RESPONSE, "system": SYSTEM, "task": TASK} | {
    "rich_text": RICH_TEXT,
    "error": ERROR,
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_an_example_reaches_the_room_with_all_its_members(text: str) -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    shown = client.send(text)[0]
    given = parse_lenient(text)
    check_members(given, shown)
    assert {name: shown[name] for name in given if name != "payload"} == {
        name: given[name] for name in given if name != "payload"
    }
    assert shown == next(f for f in other.frames if f["message_id"] == given["message_id"])
    # Who comes later is shown the same.
    assert shown in hall.open().frames or shown["message_type"] == "task"


def check_members(given: Json, shown: Json) -> None:
    """Check that no member is lost; links to files are other ones."""
    for name, value in given.items():
        if isinstance(value, dict):
            check_members(value, shown[name])
        elif isinstance(value, list):
            assert len(shown[name]) == len(value)
            for one, other in zip(value, shown[name], strict=True):
                if isinstance(one, dict):
                    check_members(one, other)
        elif name == "url":
            assert shown[name].startswith("http://127.0.0.1:7893/files/")
        else:
            assert shown[name] == value


def test_the_skeleton_of_a_message_has_no_type_that_is_clear() -> None:
    client = Hall().open()
    code, details = error_of(client.send(BASE))
    assert code == "MSG_FMT_100"
    assert details.startswith("message_type:")
    assert client.frames[-1]["metadata"] == {"request_id": "uuid-string"}


def test_a_mentioned_agent_gets_the_words_of_a_chat() -> None:
    client = Hall().open()
    client.send(CHAT)
    (say,) = client.effects
    assert isinstance(say, Say)
    assert say.agents == ("agent77",)
    entry = say.entry
    assert (entry.id, entry.text, entry.type) == ("msg55501", "早上好，船几点开", "chat")
    assert entry.author == Author("user123", "user", "张三")
    assert entry.timestamp == "2023-11-01T12:34:56.789Z"
    assert entry.reply_to == "msg55500"
    assert [author.name for author in entry.mentions] == ["李四", "船长Bot"]


def test_a_task_is_kept_told_and_tracked() -> None:
    client = Hall().open()
    frames = client.send(TASK)
    say, change = client.effects
    assert isinstance(say, Say)
    assert isinstance(change, ChangeTask)
    assert say.agents == change.agents == ("agent77",)
    assert say.entry.attachments[0].url == "https://f.example/t.csv"
    task = change.task
    assert (task.task_id, task.kind, task.status, task.progress) == ("task55", "task", "pending", 0)
    assert (task.entry_id, change.action) == ("msg55504", "created")
    payload = frames[0]["payload"]
    assert (payload["status"], payload["progress"]) == ("pending", 0)


@pytest.mark.parametrize("kind", ["agent_response", "system", "rich_text", "error"])
def test_what_is_not_a_users_is_kept_and_no_agent_gets_it(kind: str) -> None:
    client = Hall().open()
    client.send(KEPT[kind])
    (post,) = client.effects
    assert isinstance(post, Post)


def test_a_token_in_connect_proves_who_the_client_is_and_is_never_kept_or_shown() -> None:
    hall = Hall(members=("user123", "user124"))
    other = hall.open("user124")
    client = hall.open("")
    assert client.frames == []  # nothing, until it is known who is there
    frames = client.send(CONNECT)
    authenticate, enter = client.effects
    assert isinstance(authenticate, Authenticate)
    assert authenticate.token == "令牌-张三"
    assert isinstance(enter, Enter)
    assert (enter.conversation, enter.is_room, enter.last) == ("group123", True, 10)
    assert enter.author == Author("user123", "user", "张三")
    assert of_type(frames, "connect_ack")
    client.send(message(text="你好", metadata={"auth_token": "令牌-张三"}, auth_token="令牌-张三"))
    assert "令牌" not in str(other.frames) + str(client.frames) + str(hall.entries)
    assert "令牌" not in repr(authenticate)


def test_the_answer_to_connect_has_the_members_of_the_document() -> None:
    hall = Hall(members=("user123",))
    client = hall.open("")
    (shown,) = client.send(CONNECT)
    given = parse_lenient(CONNECT_ACK)
    assert set(given) <= set(shown)
    assert shown["payload"]["user_info"] == given["payload"]["user_info"]
    assert shown["payload"]["session_id"] == hall.session_id
    info = shown["payload"]["server_info"]
    assert info["version"] == "1.0.0"
    assert set(given["payload"]["server_info"]["features"]) <= set(info["features"])
    assert shown["metadata"] == {"protocol_version": "1.0"}
    assert shown["sender"] == given["sender"]


def test_a_client_may_send_what_servers_send() -> None:
    client = Hall().open()
    assert client.send(CONNECT_ACK) == []
    assert client.send({"message_type": "pong"}) == []


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_is_accepted(kind: str) -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message("task", "先有一个任务", task_id="t0"))
    other.frames.clear()
    details: dict[str, Json] = {
        "system": {"event_type": "x", "sender": {}},
        "agent_response": {"sender": {"id": "a", "type": "agent"}},
        "read_receipt": {"message_ids": ["m0"]},
        "task_update": {"task_id": "t0", "progress": 5},
    }
    frames = client.send(message(kind, "一句话", **details.get(kind, {})))
    assert of_type(frames, "error") == (frames if kind == "error" else [])
    control = ("connect", "connect_ack", "disconnect", "ping", "pong")
    if kind not in control:
        shown = {"join": "system", "leave": "system"}.get(kind, kind)
        assert of_type(other.frames, shown)
    assert client.is_closed == (kind == "disconnect")


def test_null_stands_for_what_is_absent() -> None:
    client = Hall().open()
    frame = message(text="你好", reply_to=None, mentions=None, html_content=None, 心情=None)
    frame |= {"message_id": None, "timestamp": None, "metadata": None}
    (shown,) = client.send(frame)[:1]
    assert shown["payload"] == {"text": "你好", "group_id": "group123", "心情": None}
    assert shown["metadata"] == {}
    assert shown["message_id"]
    assert shown["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2023-11-01T12:34:56.789Z", "2023-11-01T12:34:56.789Z"),
        ("2023-11-01T20:34:56+08:00", "2023-11-01T12:34:56.000Z"),
        ("2023-11-01T12:34:56", "2023-11-01T12:34:56.000Z"),
        ("2023-11-01 12:34", "2023-11-01T12:34:00.000Z"),
        (1698842096.5, "2023-11-01T12:34:56.500Z"),
        (1698842096500, "2023-11-01T12:34:56.500Z"),
    ],
)
def test_times_are_shown_in_utc(given: object, shown: str) -> None:
    frame = message(text="几点了")
    assert Hall().open().send({**frame, "timestamp": given})[0]["timestamp"] == shown


def test_numbers_are_ids_too() -> None:
    client = Hall("5").open()
    frame = message(text="你好", group_id=5, reply_to=17, sender={"id": 3, "name": "小红"})
    shown = client.send({**frame, "message_id": 18})[0]
    assert shown["message_id"] == "18"
    assert shown["sender"] == {"id": "3", "type": "user", "name": "小红"}
    assert shown["payload"]["group_id"] == "5"
    assert shown["payload"]["reply_to"] == "17"
