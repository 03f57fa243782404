"""What agents do, as clients see it: thinking, answers, steps, failures, questions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from busd.gateway import (
    Answer,
    Author,
    Cancel,
    ContextShared,
    Entry,
    Kind,
    PromptEnd,
    Replied,
    Say,
    Step,
)
from tests.gateway.group.hall import Client, Hall
from tests.gateway.group.said import LI, error_of, message, of_type


def asked(text: str = "你好", **about: Any) -> tuple[Hall, Client]:
    """Return a room in which an agent is at work."""
    hall = Hall()
    client = hall.open()
    client.send(message(text=text, message_id="m1", **about))
    return hall, client


def test_an_answer_is_announced_and_then_given() -> None:
    hall, client = asked("@agent:船长 几点？")
    hall.reply("九点。")
    thinking, final = of_type(client.frames, "agent_response")
    for frame in (thinking, final):
        assert frame["sender"] == {"id": "船长", "type": "agent", "name": "船长"}
        assert frame["payload"]["reply_to"] == "m1"
        assert frame["payload"]["group_id"] == "group123"
    assert thinking["payload"]["text"] == "[正在思考...]"
    assert thinking["payload"]["is_thinking"] is True
    assert final["payload"]["text"] == "九点。"
    assert final["payload"]["is_thinking"] is False
    # A client that shows each id once shows both.
    assert thinking["message_id"] != final["message_id"] == "reply1"


def test_two_agents_answer_two_times() -> None:
    hall, client = asked("@agent:船长 @agent:大副 几点？")
    one, two = hall.turns.values()
    hall.reply("十点。", two)
    hall.reply("九点。", one)
    shown = of_type(client.frames, "agent_response")
    assert [frame["sender"]["id"] for frame in shown] == ["船长", "大副", "大副", "船长"]
    assert len({frame["message_id"] for frame in shown}) == 4


def test_a_client_that_did_not_ask_for_it_is_not_sent_parts_of_answers() -> None:
    hall, client = asked()
    client.frames.clear()
    for _ in range(1_000):
        hall.delta("还在写")
    assert client.frames == []


def test_the_parts_of_an_answer_are_linear_in_its_length() -> None:
    hall, client = asked()
    client.send(message("connect", features=["streaming"]))
    client.frames.clear()
    for _ in range(5_000):
        hall.delta("还在写，")
    assert 10 < len(client.frames) < 60
    assert len({frame["message_id"] for frame in client.frames}) == 1
    assert all(frame["payload"]["is_thinking"] for frame in client.frames)
    assert sum(len(frame["payload"]["text"]) for frame in client.frames) < 6 * len(hall.turn.text)


def test_the_id_of_what_is_being_written_outlives_the_connection() -> None:
    hall, client = asked()
    again = hall.open()
    first, second = (of_type(c.frames, "agent_response") for c in (client, again))
    assert first[0]["message_id"] == second[0]["message_id"]


def test_a_step_is_a_status() -> None:
    hall, client = asked()
    hall.step(Step(id="s", name="", tool="查表", status="failed", code="missing", parent="s0"))
    (status,) = of_type(client.frames, "status")
    assert status["payload"]["status"] == "failed"
    assert status["payload"]["text"] == "执行失败：查表"
    assert status["payload"]["step"] == {
        "id": "s",
        "name": "",
        "parent_id": "s0",
        "tool": "查表",
        "code": "missing",
    }


def test_a_failure_is_an_error_with_its_code_in_both_places() -> None:
    hall, client = asked("@agent:船长 几点？")
    hall.fail("沉了", "ship.sunk", {"深度": 3})
    (error,) = of_type(client.frames, "error")
    assert error["error"] == {"code": "ship.sunk", "message": "代理 船长 响应失败：沉了"}
    assert error["payload"]["code"] == "ship.sunk"
    assert error["payload"]["details"] == {"深度": 3}
    assert error["metadata"] == {"request_id": "m1", "recoverable": True}
    # In the history it is an error, too.
    (later,) = of_type(hall.open().frames, "error")
    assert later["message_id"] == error["message_id"]
    assert later["payload"]["code"] == "agent_error"
    assert later["error"]["message"] == error["error"]["message"]


def test_a_failure_of_the_default_agent_names_nobody() -> None:
    hall, client = asked()
    hall.fail("不在", "")
    code, _ = error_of(client.frames[-1:])
    assert code == "agent_error"
    assert client.frames[-1]["payload"]["text"] == "代理响应失败：不在"


def test_a_status_of_cancelled_in_reply_cancels_the_answers() -> None:
    hall, client = asked("@agent:船长 @agent:大副 几点？")
    shown = client.send(message("status", status="cancelled", reply_to="m1"))
    (cancel,) = client.effects
    assert cancel == Cancel("group123", "m1")
    assert [f["payload"]["status"] for f in of_type(shown, "status")] == ["cancelled"] * 2
    assert hall.turns == {}


def test_any_other_status_is_kept_and_shown() -> None:
    hall, client = asked()
    (shown,) = client.send(message("status", "离开一会儿", status="away"))
    assert shown["payload"]["status"] == "away"
    assert hall.entries[-1].kind is Kind.POST


def test_words_of_an_agent_without_a_turn_are_shown() -> None:
    client = Hall().open()
    entry = Entry(text="提醒：退潮了", id="r", author=Author("a1", "agent"), kind=Kind.REPLY)
    client.show(Replied("group123", None, entry, False))
    shown = client.frames[-1]
    assert shown["message_type"] == "agent_response"
    assert shown["payload"]["reply_to"] == ""


def test_shared_context_is_shown_as_settings() -> None:
    client = Hall().open()
    shared = ContextShared("group123", "c", Raw(b'{"a":1}'), ("x",), Author("tom"), False)
    client.show(shared)
    payload = client.frames[-1]["payload"]
    assert client.frames[-1]["message_type"] == "settings"
    assert (payload["context_id"], payload["context_data"]) == ("c", {"a": 1})
    assert payload["target_agents"] == ["x"]


# Questions


def answer_of(client: Client) -> tuple[str, tuple[str, ...]]:
    (answer,) = client.effects
    assert isinstance(answer, Answer)
    assert answer.entry.prompt_id == answer.prompt_id
    return answer.prompt_id, answer.values


def test_a_question_is_a_poll() -> None:
    hall, client = asked()
    hall.ask("radio", "哪一班？", "上午", "下午", placeholder="选一个", seconds_left=29.96)
    shown = client.frames[-1]
    assert shown["message_type"] == "poll"
    assert shown["message_id"] == shown["payload"]["poll_id"] == "prompt1"
    payload = shown["payload"]
    assert (payload["text"], payload["reply_to"]) == ("哪一班？", "m1")
    assert payload["options"][1] == {"id": "o2", "text": "下午", "value": "v2"}
    assert (payload["multiple"], payload["placeholder"]) == (False, "选一个")
    assert payload["seconds_left"] == 30.0
    assert of_type(hall.open().frames, "poll") == [shown]


@pytest.mark.parametrize(
    "text", ["下午", " 下午 ", "v2", "o2", "2"], ids=["label", "spaces", "value", "id", "number"]
)
def test_the_next_words_of_who_was_asked_answer_a_question(text: str) -> None:
    hall, client = asked()
    hall.ask("radio", "哪一班？", "上午", "下午")
    client.send(message(text=text))
    assert answer_of(client) == ("prompt1", ("v2",))


def test_other_words_are_new_words() -> None:
    hall, client = asked()
    hall.ask("radio", "哪一班？", "上午", "下午")
    client.send(message(text="等一下，先看看天气"))
    assert isinstance(client.effects[0], Say)


def test_words_of_others_answer_nothing_but_their_replies_do() -> None:
    hall, _ = asked()
    other = hall.open()
    hall.ask("text", "几个人？")
    other.send(message(text="三个", sender=LI))
    assert isinstance(other.effects[0], Say)
    other.send(message(text="三个", sender=LI, reply_to="prompt1"))
    assert answer_of(other) == ("prompt1", ("三个",))


def test_words_that_mention_somebody_answer_nothing() -> None:
    hall, client = asked()
    hall.ask("text", "几个人？")
    client.send(message(text="@agent:大副 几个人？"))
    assert isinstance(client.effects[0], Say)


def test_a_reply_that_is_no_option_is_refused() -> None:
    hall, client = asked()
    hall.ask("dropdown", "哪一班？", "上午", "下午")
    shown = client.send(message(text="晚上", reply_to="prompt1"))
    assert error_of(shown)[1] == "payload.text: 不是该投票的选项；可选：上午、下午"
    assert "prompt1" in hall.prompts


@pytest.mark.parametrize(
    "said", [{"text": "救生衣、雨衣"}, {"text": "1,3"}, {"text": "v1，o3、"}, {"text": "雨衣\n1"}]
)
def test_several_options_in_words(said: dict[str, str]) -> None:
    hall, client = asked()
    hall.ask("checkbox", "要什么？", "救生衣", "午餐", "雨衣")
    client.send(message(**said))
    assert set(answer_of(client)[1]) == {"v1", "v3"}


def test_several_options_in_a_vote() -> None:
    hall, client = asked()
    hall.ask("checkbox", "要什么？", "救生衣", "午餐", "雨衣")
    (shown, *_) = client.send(message("poll", poll_id="prompt1", votes=["o1", "雨衣", "v1"]))
    assert answer_of(client) == ("prompt1", ("v1", "v3"))
    assert shown["payload"]["text"] == "救生衣、雨衣"


def test_the_answer_is_shown_to_everybody_and_the_question_closed() -> None:
    hall, client = asked()
    other = hall.open()
    hall.ask("text", "几个人？")
    client.send(message(text="三个"))
    chat, closed = other.frames[-2:]
    assert (chat["message_type"], chat["payload"]["text"]) == ("chat", "三个")
    assert closed["message_type"] == "task_update"
    assert (closed["payload"]["poll_id"], closed["payload"]["status"]) == ("prompt1", "completed")
    client.send(message(text="四个"))
    assert isinstance(client.effects[0], Say)


@pytest.mark.parametrize(
    ("how", "status"),
    [(PromptEnd.TIMED_OUT, "timed_out"), (PromptEnd.TURN_ENDED, "cancelled")],
)
def test_a_question_that_nobody_answers_is_closed(how: PromptEnd, status: str) -> None:
    hall, client = asked()
    hall.close(hall.ask("text", "几个人？"), how)
    assert client.frames[-1]["payload"]["status"] == status
    client.send(message(text="三个"))
    assert isinstance(client.effects[0], Say)


def test_a_notification_is_a_system_message_and_needs_no_answer() -> None:
    hall, client = asked()
    prompt = hall.ask("notification", "正在出票")
    shown = client.frames[-1]
    assert shown["message_type"] == "system"
    assert shown["sender"]["id"] == "system"
    assert shown["payload"]["event_type"] == "notification"
    assert shown["payload"]["subject"]["type"] == "agent"
    client.send(message(text="好"))
    assert isinstance(client.effects[0], Say)
    count = len(client.frames)
    hall.close(prompt, PromptEnd.TURN_ENDED)
    assert len(client.frames) == count


def test_a_question_is_shown_to_who_comes_back_after_its_turn_is_gone() -> None:
    hall, _ = asked()
    hall.ask("text", "几个人？")
    hall.turns.clear()
    assert of_type(hall.open().frames, "poll")[0]["sender"]["id"] == "agent"
