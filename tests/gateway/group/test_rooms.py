"""Rooms: who enters, what is shown of the past, who comes and goes, who has read what."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import Raw

from busd.gateway import (
    Arrived,
    AskHistory,
    Authenticate,
    Author,
    Close,
    Enter,
    Entry,
    Expel,
    Invite,
    Leave,
    MarkRead,
    Notified,
    Notify,
    Post,
    Say,
)
from tests.gateway.group.hall import NOW, Hall
from tests.gateway.group.said import LI, ZHANG, error_of, message, of_type


def test_a_client_that_is_known_is_acknowledged_at_once() -> None:
    client = Hall().open()
    (shown,) = client.frames
    assert shown["message_type"] == "connect_ack"
    (enter,) = client.effects
    assert isinstance(enter, Enter)
    assert (enter.conversation, enter.last, enter.is_room) == ("group123", 10, True)


def test_the_last_ten_messages_are_shown_the_newest_first() -> None:
    hall = Hall()
    first = hall.open()
    for number in range(12):
        first.send(message(text=str(number), message_id=f"m{number}"))
    shown = hall.open().frames
    assert [frame["message_type"] for frame in shown[:11]] == ["connect_ack"] + ["chat"] * 10
    assert [frame["payload"]["text"] for frame in shown[1:11]] == [str(n) for n in range(11, 1, -1)]


def test_a_connect_after_the_acknowledgement_repeats_no_history() -> None:
    hall = Hall()
    hall.open().send(message(text="你好"))
    client = hall.open()
    client.frames.clear()
    assert [frame["message_type"] for frame in client.send(message("connect"))] == ["connect_ack"]


def test_a_client_that_comes_back_gets_what_it_has_missed() -> None:
    hall = Hall(members=("user123",))
    first = hall.open("user123")
    for number in range(3):
        first.send(message(text=str(number), message_id=f"m{number}"))
    late = hall.open("")
    shown = late.send(message("connect", auth_token="令牌-张三", last_message_id="m0"))
    assert [f["payload"]["text"] for f in of_type(shown, "chat")] == ["2", "1"]


def test_a_client_can_page_back() -> None:
    hall = Hall()
    client = hall.open()
    for number in range(5):
        client.send(message("markdown", str(number), message_id=f"m{number}", sender=agent()))
    shown = client.send(message("connect", history={"last": 2}))
    assert [f["payload"]["text"] for f in shown[:-1]] == ["4", "3"]
    assert shown[-1]["payload"]["history"] == {"count": 2, "has_more": True, "before": 4}
    shown = client.send(message("connect", history={"last": 500, "before": 4}))
    assert [f["payload"]["text"] for f in shown[:-1]] == ["2", "1", "0"]
    assert shown[-1]["payload"]["history"] == {"count": 3, "has_more": False, "before": 1}
    assert isinstance(client.effects[0], AskHistory)


@pytest.mark.parametrize("history", [{"last": 501}, {"last": "x"}, {"before": -1}])
def test_a_page_that_cannot_be_is_refused(history: object) -> None:
    code, details = error_of(Hall().open().send(message("connect", history=history)))
    assert code == "MSG_FMT_100"
    assert details.startswith("payload.history.")


def test_the_token_of_another_system_does_no_harm_to_a_client_that_is_known() -> None:
    client = Hall().open()
    shown = client.send(message("connect", auth_token="jwt.of.somebody"))
    assert isinstance(client.effects[0], Authenticate)
    assert [frame["message_type"] for frame in shown] == ["connect_ack"]
    assert shown[0]["payload"]["user_info"]["id"] == "user123"


def test_a_token_makes_a_client_somebody_else_while_it_is_in_no_room() -> None:
    hall = Hall(members=("user124",))
    client = hall.open("user125")
    assert error_of(client.frames)[0] == "MSG_WSK_203"
    client.send(message("connect", auth_token="令牌-李四", sender=LI))
    assert [type(effect) for effect in client.effects] == [Authenticate, Enter]
    assert client.hello.user == "user124"
    assert of_type(client.frames, "connect_ack")


def test_a_wrong_token_is_refused_with_the_documents_code() -> None:
    hall = Hall(members=("user123",))
    client = hall.open("")
    code, _ = error_of(client.send(message("connect", auth_token="猜的")))
    assert code == "auth_failed"
    assert hall.clients == []


def test_a_client_without_a_token_is_asked_for_one() -> None:
    client = Hall().open("")
    assert error_of(client.send(message("connect"))) == ("MSG_WSK_203", "payload.auth_token: 缺失")
    assert error_of(client.send(message(text="有人吗")))[0] == "MSG_WSK_203"
    assert client.send({"message_type": "ping"})[0]["message_type"] == "pong"


def test_who_is_no_member_stays_outside_and_is_told_so() -> None:
    hall = Hall(members=("user124",))
    client = hall.open("user123")
    assert error_of(client.frames)[0] == "MSG_WSK_203"
    assert error_of(client.send(message(text="让我进去")))[0] == "MSG_SND_001"
    assert hall.entries == []


def test_a_member_invites_another_user() -> None:
    hall = Hall()
    zhang = hall.open("user123")
    (shown,) = zhang.send(message("join", subject=LI))
    invite, post = zhang.effects
    assert isinstance(invite, Invite)
    assert invite.user == "user124"
    assert isinstance(post, Post)
    payload = shown["payload"]
    assert shown["message_type"] == "system"
    assert shown["sender"] == {"id": "system", "type": "system", "name": "系统"}
    assert (payload["event_type"], payload["subject"]) == ("member_joined", LI)
    assert payload["text"] == "李四加入了群组"
    assert of_type(hall.open("user124").frames, "connect_ack")


def test_an_invitation_that_is_refused_is_not_announced() -> None:
    hall = Hall()
    client = hall.open("user123")
    hall.refusals[Invite] = "member"
    assert error_of(client.send(message("join", subject=LI)))[0] == "MSG_WSK_203"
    assert hall.entries == []


def test_who_leaves_hears_nothing_more_until_they_join_again() -> None:
    hall = Hall(members=("user123", "user124"))
    zhang, li = hall.open("user123"), hall.open("user124")
    zhang.send(message("leave"))
    assert of_type(li.frames, "system")[0]["payload"]["event_type"] == "member_left"
    zhang.frames.clear()
    li.send(message(text="他走了", sender=LI))
    assert zhang.frames == []
    shown = zhang.send(message("join"))
    assert [f["message_type"] for f in shown] == ["connect_ack", "chat", "system", "system"]
    assert li.frames[-1]["payload"]["event_type"] == "member_joined"


def test_a_membership_ends_when_its_user_is_named() -> None:
    hall = Hall(members=("user123", "user124"))
    zhang = hall.open("user123")
    zhang.send(message("leave", subject=LI))
    assert hall.members == ["user123"]
    assert [type(effect) for effect in zhang.effects] == [Expel, Post]
    zhang.send(message("leave", subject=ZHANG))
    assert hall.members == []
    assert [type(effect) for effect in zhang.effects] == [Post, Expel, Leave]


def test_the_other_user_of_a_room_of_two_becomes_a_member() -> None:
    hall = Hall("user123_user124")
    hall.open("user123")
    assert hall.members == ["user123", "user124"]
    assert of_type(hall.open("user124").frames, "connect_ack")


def test_a_room_of_two_that_was_there_before_invites_nobody() -> None:
    hall = Hall("user123_user124", members=("user123",))
    hall.open("user123")
    assert hall.members == ["user123"]


def test_disconnect_closes_the_connection() -> None:
    hall = Hall()
    client = hall.open()
    close = list(client.dialect.receive('{"message_type": "disconnect"}'))
    assert [type(effect) for effect in close] == [Close]


# Who gets words that mention nobody


def test_the_default_agent_answers_if_one_user_is_in_the_room() -> None:
    client = Hall().open("user123")
    client.send(message(text="你好"))
    assert agents_of(client.effects) == ()


def test_nobody_answers_in_a_room_with_several_members() -> None:
    hall = Hall(members=("user123", "user124"))  # 李四 is not even connected
    client = hall.open("user123")
    client.send(message(text="你好"))
    assert agents_of(client.effects) is None


def test_nobody_answers_when_somebody_else_has_come() -> None:
    hall = Hall(members=("owner",))
    zhang = hall.open()
    zhang.send(message(text="你好"))
    assert agents_of(zhang.effects) == ()
    li = hall.open()
    li.send(message("connect", sender=LI))
    zhang.send(message(text="欢迎"))
    assert agents_of(zhang.effects) is None
    li.leave()
    zhang.send(message(text="又只有我了"))
    assert agents_of(zhang.effects) == ()


def test_somebody_who_speaks_without_having_said_who_they_are_counts_too() -> None:
    hall = Hall()
    zhang, li = hall.open(), hall.open()
    li.send(message(text="我来了", sender=LI))
    zhang.send(message(text="你好"))
    assert agents_of(zhang.effects) is None


def test_the_same_user_with_another_dialect_does_not_count() -> None:
    hall = Hall()
    client = hall.open()
    client.show(Arrived(hall.room, Author("owner")))
    client.send(message(text="你好"))
    assert agents_of(client.effects) == ()


def test_nobody_answers_in_a_room_of_two_users() -> None:
    client = Hall("user123_user124").open()
    client.send(message(text="只给你看"))
    assert agents_of(client.effects) is None


def test_words_that_mention_a_user_are_for_that_user() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message(text="看这个", mentions=[LI]))
    assert agents_of(client.effects) is None


def test_a_reply_to_an_agents_answer_is_for_that_agent() -> None:
    hall = Hall(members=("user123", "user124"))
    client = hall.open("user123")
    client.send(message(text="@agent:导航员 几点？"))
    hall.reply("九点。")
    client.send(message(text="谢谢", reply_to="reply1"))
    assert agents_of(client.effects) == ("导航员",)
    later = hall.open("user124")
    later.send(message(text="我也谢谢", reply_to="reply1", sender=LI))
    assert agents_of(later.effects) == ("导航员",)


# What is not said


def test_typing_goes_to_the_others_in_both_spellings() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message("typing", status="typing", remaining_text=4))
    (shown,) = of_type(other.frames, "typing")
    assert shown["payload"] == {
        "is_typing": True,
        "status": "typing",
        "remaining_text": 4,
        "group_id": "group123",
    }
    client.send(message("typing", is_typing=False))
    payload = of_type(other.frames, "typing")[1]["payload"]
    assert (payload["is_typing"], payload["status"]) == (False, "stopped")
    assert of_type(client.frames, "typing") == []
    assert hall.entries == []


def test_typing_in_another_dialect_is_shown() -> None:
    client = Hall().open()
    client.show(Notified("group123", "typing", Author("ann", name="安"), Raw(b"{}")))
    assert client.frames[-1]["payload"]["is_typing"] is True
    client.show(Notified("group123", "away", Author("ann", name="安"), Raw(b"{}")))
    assert client.frames[-1]["message_type"] == "typing"


def test_a_flood_of_typing_reaches_nobody_and_is_no_error() -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    for number in range(1_000):
        client.send(message("typing", is_typing=number % 2 == 0))
    assert len(of_type(other.frames, "typing")) == 3
    assert of_type(client.frames, "error") == []
    client.now = NOW.replace("12:00:00", "12:00:01")
    client.send(message("typing", is_typing=True))
    assert len(of_type(other.frames, "typing")) == 4
    assert isinstance(client.effects[0], Notify)


def test_receipts_are_shown_to_the_others_and_can_be_asked_for() -> None:
    hall = Hall()
    zhang, li = hall.open(), hall.open()
    zhang.send(message(text="看到了吗", message_id="m1"))
    receipt = {"message_type": "read_receipt", "sender": LI, "payload": {"message_id": "m1"}}
    assert li.send(receipt) == []
    (mark,) = li.effects
    assert isinstance(mark, MarkRead)
    assert (mark.ids, mark.by.id) == (("m1",), "user124")
    told = of_type(zhang.frames, "read_receipt")[0]
    assert (told["sender"], told["payload"]["message_ids"]) == (LI, ["m1"])
    (answer,) = zhang.send(message("read_receipt", message_ids=["m1", "m2"], query=True))
    readers = {"m1": [{"id": "user124", "read_at": NOW}], "m2": []}
    assert answer["payload"]["readers"] == readers


# Others in the same conversation


def test_words_of_another_dialect_are_chat_and_answers_to_them_are_responses() -> None:
    hall = Hall()
    client = hall.open()
    entry = Entry(text="hello", id="x1", author=Author("ann", name="Ann"), dialect="agentiq")
    shown = client.dialect._frames.of_entry(entry, {})
    assert shown["message_type"] == "chat"
    assert shown["sender"] == {"id": "ann", "type": "user", "name": "Ann"}
    assert shown["payload"] == {"group_id": "group123", "text": "hello"}


def agent() -> dict[str, str]:
    return {"id": "scribe", "type": "agent", "name": "书记员"}


def agents_of(effects: Sequence[object]) -> tuple[str, ...] | None:
    (say,) = [effect for effect in effects if isinstance(effect, Say)]
    return say.agents
