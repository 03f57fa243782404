"""What is wrong with a message is told in the format's own words; the connection lives on."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import (
    RULES,
    Answer,
    Author,
    ChangeTask,
    Done,
    Entered,
    Post,
    Say,
    SocketFrame,
)
from busd_plugins.group.errors import OF_RULES
from tests.gateway.group.hall import Client, Hall, Json
from tests.gateway.group.said import ZHANG, error_of, message, of_type


def refused(frame: Json | str, client: Client | None = None) -> tuple[str, str]:
    """Return code and details of the error for a frame; nothing else may have come of it."""
    client = client or Hall().open()
    found = error_of(client.send(frame))
    assert client.effects == []
    still_works(client)
    return found


def still_works(client: Client) -> None:
    shown = client.send({"message_type": "ping"})
    assert [frame["message_type"] for frame in shown] == ["pong"]
    assert not client.is_closed


@pytest.mark.parametrize("frame", ["", "你好", "{", '{"message_type": chat}', "[[[", '"\\ud800"'])
def test_text_that_is_no_json(frame: str) -> None:
    assert refused(frame)[0] == "MSG_FMT_103"


@pytest.mark.parametrize("frame", ["[]", "null", "17", '"chat"', "[{}]"])
def test_json_that_is_no_object(frame: str) -> None:
    assert refused(frame) == ("MSG_FMT_100", "message: 必须是JSON对象")


def test_a_frame_that_is_no_text() -> None:
    client = Hall().open()
    client.run(client.dialect.receive(SocketFrame("/", "message")))
    assert error_of(client.frames[-1:])[0] == "MSG_FMT_103"


def test_a_message_without_a_type() -> None:
    assert refused({"sender": ZHANG, "payload": {}}) == ("MSG_FMT_100", "message_type: 缺失")
    # What the original's other pages send.
    assert refused({"type": "auth", "username": "张三"}) == ("MSG_FMT_100", "message_type: 缺失")


@pytest.mark.parametrize("kind", ["chats", "CHAT", "", 5, ["chat"], {}, "notification"])
def test_a_message_of_an_unknown_type(kind: Any) -> None:
    code, details = refused(message(kind, "你好"))
    assert code == "MSG_FMT_100"
    assert details.startswith("message_type: 必须是25种")


@pytest.mark.parametrize(
    ("sender", "details"),
    [
        (None, "sender: 缺失"),
        ("张三", "sender: 必须是对象"),
        ({}, "sender.id: 缺失"),
        ({"name": "张三"}, "sender.id: 缺失"),
        ({"id": "", "name": "张三"}, "sender.id: 缺失"),
        ({"id": ["x"]}, "sender.id: 必须是字符串"),
        ({"id": True}, "sender.id: 必须是字符串"),
        ({"id": "x", "name": {}}, "sender.name: 必须是字符串"),
        ({"id": "x", "type": "robot"}, "sender.type: 必须是 user、agent 或 system"),
        ({"id": "x", "type": "user|agent|system"}, "sender.type: 必须是 user、agent 或 system"),
    ],
)
def test_a_missing_or_wrong_sender(sender: Any, details: str) -> None:
    assert refused(message(text="你好", sender=sender)) == ("MSG_FMT_100", details)


def test_a_message_without_a_sender_member() -> None:
    frame = {"message_type": "chat", "payload": {"text": "你好"}}
    assert refused(frame) == ("MSG_FMT_100", "sender: 缺失")


def test_an_answer_of_an_agent_whose_sender_is_none() -> None:
    frame = message("agent_response", "好的", sender=ZHANG)
    assert refused(frame) == ("MSG_FMT_100", "sender.type: 必须是 agent")


@pytest.mark.parametrize("payload", [None, [], "你好", 5])
def test_a_payload_that_is_no_object(payload: Any) -> None:
    frame = {"message_type": "chat", "sender": ZHANG, "payload": payload}
    assert refused(frame) == ("MSG_FMT_100", "payload: 必须是对象")


def test_metadata_that_is_no_object() -> None:
    assert refused({**message(text="x"), "metadata": "m"})[1] == "metadata: 必须是对象"


@pytest.mark.parametrize(
    ("kind", "payload", "details"),
    [
        ("chat", {}, "payload.text: 缺失"),
        ("chat", {"text": None}, "payload.text: 缺失"),
        ("chat", {"text": ["你好"]}, "payload.text: 必须是字符串"),
        ("chat", {"text": "x", "reply_to": {}}, "payload.reply_to: 必须是字符串"),
        ("chat", {"text": "x", "mentions": "张三"}, "payload.mentions: 必须是数组"),
        ("chat", {"text": "x", "mentions": [5, {}]}, "payload.mentions[1].id: 缺失"),
        (
            "chat",
            {"text": "x", "mentions": [{"id": "s", "type": "system"}]},
            "payload.mentions[0].type: 必须是 user 或 agent",
        ),
        ("chat", {"text": "x", "mentions": [""]}, "payload.mentions[0]: 缺失"),
        ("chat", {"text": "x", "attachments": {}}, "payload.attachments: 必须是数组"),
        ("chat", {"text": "x", "attachments": ["f"]}, "payload.attachments[0]: 必须是对象"),
        ("system", {"text": "x"}, "payload.event_type: 缺失"),
        (
            "agent_response",
            {"text": "x", "confidence": 2},
            "payload.confidence: 必须是0到1之间的数字",
        ),
        ("rich_text", {"html_content": 5.5}, "payload.html_content: 必须是字符串"),
        ("task", {"assignees": {}}, "payload.assignees: 必须是数组"),
        ("task", {"progress": 101}, "payload.progress: 必须是0到100之间的数字"),
        ("task", {"progress": -1}, "payload.progress: 必须是0到100之间的数字"),
        ("task", {"progress": True}, "payload.progress: 必须是0到100之间的数字"),
        ("task", {"progress": "一半"}, "payload.progress: 必须是0到100之间的数字"),
        ("task", {"status": {}}, "payload.status: 必须是字符串"),
        ("task", {"update_history": 5}, "payload.update_history: 必须是数组"),
        ("task_update", {"status": "done"}, "payload.task_id: 缺失"),
        ("task_update", {"task_id": "别的房间的"}, "payload.task_id: 没有这个任务"),
        ("poll", {"vote": "海边"}, "payload.poll_id: 缺失"),
        ("poll", {"poll_id": "p", "vote": {"a": 1}, "votes": [{}]}, "payload.votes: 必须是字符串"),
        ("read_receipt", {}, "payload.message_id: 缺失"),
        ("read_receipt", {"message_ids": []}, "payload.message_ids: 缺失"),
        ("read_receipt", {"message_ids": "m1"}, "payload.message_ids: 必须是数组"),
        ("read_receipt", {"message_ids": [{}]}, "payload.message_ids: 必须是字符串"),
        ("read_receipt", {"message_ids": ["m"] * 1_001}, "payload.message_ids: 超过1000项"),
        ("join", {"subject": "李四"}, "payload.subject: 必须是带有 id 的对象"),
    ],
)
def test_a_member_that_is_missing_or_wrong(kind: str, payload: Json, details: str) -> None:
    sender = {"id": "a", "type": "agent"} if kind == "agent_response" else ZHANG
    frame = {"message_type": kind, "sender": sender, "payload": payload}
    code, found = refused(frame)
    assert (code, found) == ("MSG_FMT_100", details)


@pytest.mark.parametrize(
    "timestamp", ["昨天", "iso-datetime-string", "2023-13-01T00:00:00Z", [], 1e300, True, {}]
)
def test_a_time_that_is_none(timestamp: Any) -> None:
    frame = {**message(text="x"), "timestamp": timestamp}
    assert refused(frame)[1] == "timestamp: 必须是ISO 8601格式的时间"


def test_the_id_of_another_room() -> None:
    hall = Hall()
    code, details = refused(message(text="x", group_id="别处"), hall.open())
    assert code == "MSG_FMT_100"
    assert details.startswith("payload.group_id: 是另一个房间")
    assert hall.entries == []


def test_the_error_names_the_message_that_it_is_about() -> None:
    client = Hall().open()
    client.send(message("chat", None, message_id="m7"))
    assert client.frames[-1]["metadata"] == {"request_id": "m7"}
    client.hall.refusals[Say] = "limit"
    client.send(message(text="x", message_id="m8"))
    assert client.frames[-1]["metadata"] == {"request_id": "m8"}


def test_a_token_in_the_wrong_place_goes_nowhere() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    frame = message(text="x", auth_token="秘密", 深={"处": [{"auth_token": "秘密", "好": 1}]})
    client.send({**frame, "auth_token": "秘密", "metadata": {"auth_token": {"x": "秘密"}}})
    assert "秘密" not in str(other.frames) + str(client.frames)
    assert "秘密" not in repr([bytes(entry.original) for entry in hall.entries])  # type: ignore[arg-type]
    assert other.frames[1]["payload"]["深"] == {"处": [{"好": 1}]}
    # In a connect that is not valid, it is not repeated either.
    shown = client.send({**message("connect", auth_token="秘密"), "metadata": 5})
    assert "秘密" not in str(shown)
    assert client.send(message("connect", auth_token=["秘密"]))[0]["message_type"] == "connect_ack"


def test_a_message_that_is_nested_too_deeply() -> None:
    deep: Any = "x"
    for _ in range(70):
        deep = [deep]
    assert refused(message(text="x", 深=deep)) == ("MSG_FMT_100", "message: 嵌套超过64层")
    assert refused("[" * 100_000)[0] == "MSG_FMT_103"


def test_ten_thousand_members_in_a_room() -> None:
    hall = Hall()
    client = hall.open()
    people = [Author(f"u{n}", name=f"成员{n}") for n in range(10_000)]
    entered = Entered(
        conversation="group123",
        is_new=False,
        session_id="s",
        present=people,
        entries=[],
        turns=[],
        prompts=[],
        tasks=[],
        members=[person.id for person in people[:1_000]],
    )
    client.show(entered)
    client.send(message(text="@成员9999，你好。@成员1你好"))
    (say,) = client.effects
    assert isinstance(say, Say)
    assert [author.id for author in say.entry.mentions] == ["u9999", "u1"]
    assert say.agents is None


def test_ten_thousand_people_in_one_message() -> None:
    crowd = [{"id": f"u{n}", "type": "user", "name": f"成员{n}"} for n in range(10_000)]
    assert refused(message(text="x", mentions=crowd))[1] == "payload.mentions: 超过100项"
    assert refused(message("task", "x", assignees=crowd))[1] == "payload.assignees: 超过100项"
    files = [{"name": str(n)} for n in range(10_000)]
    assert refused(message(text="x", attachments=files))[1] == "payload.attachments: 超过100项"
    client = Hall().open()
    client.send(message(text="".join(f"@agent:a{n} " for n in range(10_000))))
    (say,) = client.effects
    assert isinstance(say, Say)
    assert len(say.agents or ()) == 100  # the host says how many are too many


def test_a_mention_of_nobody() -> None:
    hall = Hall()
    client = hall.open()
    (shown, *_) = client.send(message(text="@没有这个人 你好 @ @@ ＠"))
    assert "mentions" not in shown["payload"]
    (say,) = client.effects
    assert isinstance(say, Say)
    assert say.agents == ()


def test_an_agent_that_does_not_exist() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message(text="@agent:无名氏 在吗", message_id="m1"))
    hall.fail("no such agent", "agent_refused")
    code, details = error_of(other.frames[-1:])
    assert (code, details) == ("agent_refused", "no such agent")
    assert other.frames[-1]["payload"]["text"] == "代理 无名氏 响应失败：no such agent"
    assert other.frames[-1]["payload"]["reply_to"] == "m1"


def test_a_message_with_an_id_that_was_there_before_is_kept_once_and_shown_again() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    first = client.send(message(text="只说一次", message_id="m1"))
    again = client.send(message(text="只说一次", message_id="m1"))
    assert again == first[:1]
    assert len(hall.entries) == 1
    assert len(of_type(other.frames, "chat")) == 1
    client.send(message("task", "做", task_id="t", message_id="m2"))
    client.send(message("task", "做", task_id="t", message_id="m2"))
    assert not any(isinstance(effect, ChangeTask) for effect in client.effects)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("unauthenticated", "MSG_WSK_203"),
        ("authentication", "auth_failed"),
        ("author", "MSG_FMT_100"),
        ("conversation", "MSG_SND_001"),
        ("member", "MSG_WSK_203"),
        ("invalid", "MSG_FMT_100"),
        ("agent", "MSG_SND_001"),
        ("prompt", "MSG_SND_001"),
        ("option", "MSG_FMT_100"),
        ("limit", "MSG_SND_001"),
        ("busy", "MSG_SND_001"),
    ],
)
def test_what_the_host_refuses_is_told_by_its_rule(rule: str, code: str) -> None:
    hall = Hall()
    client = hall.open()
    hall.refusals[Say] = rule
    shown = client.send(message(text="x"))
    assert error_of(shown) == (code, "the reason, in English")
    assert shown[0]["payload"]["text"].isascii() is False
    hall.refusals.clear()
    still_works(client)


@pytest.mark.parametrize(
    ("rule", "code"),
    [("limit", "MSG_SND_001"), ("invalid", "MSG_FMT_103"), ("busy", "MSG_SND_001")],
)
def test_a_frame_that_the_host_did_not_pass_on(rule: str, code: str) -> None:
    client = Hall().open()
    client.frames.clear()
    client.run(client.dialect.refuse(rule, "too large"))
    assert error_of(client.frames) == (code, "too large")


def test_two_answers_to_one_question() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message(text="订票"))
    prompt = hall.ask("binary_choice", "确定吗？", "是", "否")
    client.send(message("poll", poll_id=prompt.id, vote="是"))
    assert isinstance(client.effects[0], Answer)
    code, _ = error_of(other.send(message("poll", poll_id=prompt.id, vote="否")))
    assert code == "MSG_SND_001"
    still_works(other)


def test_an_answer_to_a_question_of_another_conversation() -> None:
    client = Hall().open()
    code, details = error_of(client.send(message("poll", poll_id="别处的", vote="是")))
    assert (code, details) == ("MSG_SND_001", "别处的: the reason, in English")


def test_a_vote_for_an_option_that_does_not_exist() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("poll", "去哪儿？", poll_id="p", options=["海边", "山上"]))
    found = refused(message("poll", poll_id="p", vote="天上"), client)
    assert found == ("MSG_FMT_100", "payload.vote: 没有这个选项；可选：海边、山上")
    found = refused(message("poll", poll_id="p", votes=["海边", "山上"]), client)
    assert found == ("MSG_FMT_100", "payload.vote: 只能选择一个选项")
    client.send(message(text="订票"))
    hall.ask("checkbox", "要什么？", "午餐", "雨衣")
    found = refused(message("poll", poll_id="prompt1", votes=["午餐", "飞机"]), client)
    assert found == ("MSG_FMT_100", "payload.vote: 没有这个选项；可选：午餐、雨衣")


def test_a_change_that_is_refused_is_not_announced() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message("task", "做", task_id="t"))
    other.frames.clear()
    hall.refusals[ChangeTask] = "busy"
    error_of(client.send(message("task_update", task_id="t", progress=50)))
    assert other.frames == []
    assert not any(isinstance(effect, Post) for effect in client.effects)


def test_a_host_that_tells_of_no_entry_is_no_problem() -> None:
    client = Hall().open()
    client.frames.clear()
    client.show(Done(Say("group123", None), is_duplicate=True))  # type: ignore[arg-type]
    assert client.frames == []


def test_every_rule_of_the_host_has_a_code() -> None:
    assert OF_RULES.keys() == RULES.keys()
