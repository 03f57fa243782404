"""What one member of a room cannot do to the gateway and to the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from busd.gateway import Author, Enter, Notify
from busd_plugins.group import plugin
from busd_plugins.group.html import MAX_CHARACTERS, clean_html
from busd_plugins.group.links import MAX_LINKS
from busd_plugins.group.mentions import find_mentions
from busd_plugins.group.notices import MAX_TYPING_BYTES
from busd_plugins.group.people import MAX_NAME, People
from busd_plugins.group.tracked import MAX_OPTIONS
from tests.gateway.group.hall import Hall, Json
from tests.gateway.group.said import LI, error_of, message, of_type

SYSTEM = {"id": "system", "type": "system", "name": "系统"}
URL = "https://files.example/a.png"


def refused(frame: Json, hall: Hall | None = None) -> str:
    """Return why a member's message was refused; nothing of it is kept."""
    hall = hall or Hall()
    client = hall.open("user123")
    client.frames.clear()
    kept = len(hall.entries)
    code, details = error_of(client.send(frame))
    assert code == "MSG_FMT_100"
    assert len(hall.entries) == kept
    return details


def seconds(act: Callable[[], object]) -> float:
    started = time.process_time()
    act()
    return time.process_time() - started


# To speak as somebody else


@pytest.mark.parametrize(
    "frame",
    [
        message("system", "请把令牌发给我", event_type="notification"),
        message("error", "授权失败", code="auth_failed", sender=SYSTEM),
        message(text="我是李四", sender={**LI, "type": "system"}),
        message("join", sender=SYSTEM),
        message("read_receipt", message_ids=["m1"], sender=SYSTEM),
    ],
)
def test_a_member_does_not_speak_as_the_system(frame: Json) -> None:
    assert refused(frame) == "sender.type: 不能是 system"


def test_a_program_of_the_owner_may_speak_as_the_system() -> None:
    (shown,) = Hall().open().send(message("system", "今晚停机", event_type="maintenance"))
    assert (shown["sender"], shown["payload"]["text"]) == (SYSTEM, "今晚停机")


@pytest.mark.parametrize(("kind", "done"), [("join", "加入了群组"), ("leave", "离开了群组")])
def test_what_somebody_says_when_they_come_or_go_is_not_said_by_the_system(
    kind: str, done: str
) -> None:
    hall = Hall(members=("user123", "user124"))
    zhang, li = hall.open("user123"), hall.open("user124")
    zhang.send(message(kind, "请把令牌发给王五"))
    (shown,) = of_type(li.frames, "system")
    assert shown["payload"]["text"] == f"张三{done}：请把令牌发给王五"


@pytest.mark.parametrize(
    ("room", "creators"),
    [("user123_user124", ("user123", "user124")), ("group123", ()), ("a_b", ())],
)
def test_a_room_of_two_is_entered_only_if_one_of_them_has_made_it(
    room: str, creators: tuple[str, ...]
) -> None:
    client = Hall(room).open("user123")
    enter = client.effects[0]
    assert isinstance(enter, Enter)
    assert enter.creators == creators


# To keep the gateway busy


def test_a_text_of_at_signs_takes_no_time() -> None:
    people = People()
    people.learn(*(Author("q" * length) for length in range(1, MAX_NAME + 1)))
    assert seconds(lambda: find_mentions("@" * 1_000_000, people)) < 0.5  # one by one: 1.5 s


def test_a_poll_with_too_many_options() -> None:
    many = [f"选项{n}" for n in range(MAX_OPTIONS + 1)]
    frame = message("poll", "去哪儿？", poll_id="p", options=many)
    assert refused(frame) == f"payload.options: 超过{MAX_OPTIONS}项"


def test_a_vote_for_too_many_options() -> None:
    hall = Hall()
    hall.open().send(message("poll", "去哪儿？", poll_id="p", options=["海边"], multiple=True))
    hall.members.append("user123")
    found = refused(message("poll", poll_id="p", votes=["海边"] * (MAX_OPTIONS + 1)), hall)
    assert found == f"payload.votes: 超过{MAX_OPTIONS}项"


def test_a_vote_for_all_options_takes_no_time() -> None:
    client = Hall().open("user123")
    many = [f"选项{n}" for n in range(MAX_OPTIONS)]
    client.send(message("poll", "去哪儿？", poll_id="p", options=many, multiple=True))
    assert seconds(lambda: client.send(message("poll", poll_id="p", votes=many))) < 1
    assert client.frames[-1]["payload"]["total_votes"] == 1


@pytest.mark.parametrize(
    "payload",
    [
        {"urls": [URL] * (MAX_LINKS + 1)},
        {"files": [{"imageUrl": URL}] * (MAX_LINKS + 1)},
        {"html_content": f"<img src='{URL}'>" * (MAX_LINKS + 1)},
        {"cards": [{"html_content": f"<img src='{URL}'>"}] * (MAX_LINKS + 1)},
    ],
)
def test_a_message_with_too_many_links(payload: Json) -> None:
    assert refused(message("rich_text", "看", **payload)) == f"payload: 超过{MAX_LINKS}个链接"


def test_too_much_html_in_several_parts() -> None:
    half = "x" * (MAX_CHARACTERS // 2 + 1)
    found = refused(message("rich_text", html_content=half, card={"html_content": half}))
    assert found == f"html_content: 超过{MAX_CHARACTERS}个字符"


def test_html_for_a_crowd_is_made_ready_once() -> None:
    hall = Hall()
    zhang = hall.open()
    crowd = [hall.open() for _ in range(200)]
    html = f"<img alt='x' src='{URL}'>" * MAX_LINKS + "<b><i>x</b></i>" * 15_000

    def send() -> None:
        zhang.send(message("rich_text", html_content=html))

    assert seconds(send) < 40 * seconds(lambda: clean_html(html))
    (last,) = of_type(crowd[-1].frames, "rich_text")
    assert (
        last["payload"]["html_content"].count('src="http://127.0.0.1:7893/files/a.png?signed"')
        == MAX_LINKS
    )


def test_typing_is_short() -> None:
    long = message("typing", is_typing=True, draft="x" * MAX_TYPING_BYTES)
    assert refused(long) == f"payload: 超过{MAX_TYPING_BYTES}字节"
    client = Hall().open("user123")
    client.send(message("typing", is_typing=True, draft="x"))
    assert isinstance(client.effects[0], Notify)


# To show scripts


@pytest.mark.parametrize("where", ["payload", "metadata", "beside"])
def test_html_is_made_harmless_wherever_it_stands(where: str) -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    card: dict[str, Any] = {
        "card": [{"html_content": "<b onclick=偷()>你好</b><script>偷()</script>"}]
    }
    frame = message(text="看")
    for name in ("payload", "metadata"):
        frame[name] = {**frame.get(name, {}), **(card if where == name else {})}
    client.send({**frame, **(card if where == "beside" else {})})
    shown = other.frames[1]
    found = shown if where == "beside" else shown[where]
    assert found["card"] == [{"html_content": "<b>你好</b>"}]


@pytest.mark.parametrize("name", ["url", "file_url", "fileUrl", "imageURL", "thumbnail_urls"])
@pytest.mark.parametrize("url", ["javascript:偷()", "data:text/html,偷", "file:///etc/passwd"])
def test_an_address_that_is_none_of_the_web_is_shown_to_nobody(name: str, url: str) -> None:
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message("file", **{name: url}))
    assert other.frames[1]["payload"][name] == ""


def test_the_pages_of_the_original_use_two_addresses() -> None:
    assert set(plugin.dialects) == {"/ws/messaging/{room}/", "/ws/messaging/groups/{room}/"}
