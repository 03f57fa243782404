"""Who is mentioned in a text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busd.gateway import Author
from busd_plugins.group.mentions import MAX_MENTIONS, find_mentions
from busd_plugins.group.people import DEFAULT_AGENT, MAX_NAME, People

PEOPLE = [
    Author("u1", name="张三"),
    Author("u2", name="张三丰"),
    Author("u3", name="Li Lei"),
    Author("u4", name="bob"),
    Author("u5", name="助手"),
    Author("a1", "agent", "助手Bot"),
    Author("a2", "agent", "数据 分析师"),
    Author("scribe", "agent", "书记员"),
]


@pytest.fixture
def people() -> People:
    known = People()
    known.learn(*PEOPLE)
    return known


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("你好", []),
        ("@张三 你好", ["u1"]),
        ("@张三你好", ["u1"]),  # Chinese needs no space
        ("@张三丰你好", ["u2"]),  # the longest name
        ("@张三，@张三丰。", ["u1", "u2"]),
        ("请＠张三看一下", ["u1"]),
        ("@张三！@张三？@张三", ["u1"]),
        ("（@张三）", ["u1"]),
        ("@Li Lei, hello", ["u3"]),
        ("@li lei", ["u3"]),
        ("@LI LEI", ["u3"]),
        ("@bob", ["u4"]),
        ("@bob.", ["u4"]),
        ("@bob你好", ["u4"]),
        ("@bobby", []),  # not within a word
        ("@bob_1", []),
        ("@u4", ["u4"]),  # an id is a name, too
        ("mail@bob.example", []),
        ("a.b@bob", []),
        ("中文@bob", ["u4"]),
        ("@@bob", ["u4"]),
        ("@ bob", []),
        ("@没有这个人", []),
        ("@", []),
        ("@\n张三", []),
        ("@助手Bot", ["a1"]),  # longer than 助手, and an agent
        ("@助手", ["u5"]),
        ("@书记员", ["scribe"]),
        ("@agent:书记员，请记录", ["scribe"]),
        ("@agent:助手Bot 在吗", ["a1"]),
        ("@agent：助手bot在吗", ["a1"]),
        ("@AGENT:scribe", ["scribe"]),
        ("@agent:数据 分析师 请看", ["a2"]),
        ("@agent:助手", ["助手"]),  # the user 助手 is no agent
        ("@agent:新人-1.x，你好", ["新人-1.x"]),
        ("@agent:新人.", ["新人"]),
        ("@agent:worker-abc's", ["worker-abc"]),
        ("@agent:，", []),
        ("@agent:", []),
        ("@agent: 书记员", []),
        ("@agent 帮忙", ["agent"]),
        ("@agent，帮忙", ["agent"]),
        ("@代理 帮忙", ["agent"]),
        ("@代理", ["agent"]),
        ("@代理人", []),
        ("@agents", []),
    ],
)
def test_mentions(people: People, text: str, ids: list[str]) -> None:
    assert [author.id for author in find_mentions(text, people)] == ids


def test_a_name_keeps_who_had_it_first(people: People) -> None:
    people.learn(Author("u9", name="张三"))
    assert find_mentions("@张三", people) == [PEOPLE[0]]


def test_a_user_cannot_take_the_place_of_an_agent(people: People) -> None:
    people.learn(Author("u9", name="书记员"))
    (found,) = find_mentions("@agent:书记员", people)
    assert found == Author("scribe", "agent", "书记员")


def test_somebody_gets_a_name_later() -> None:
    people = People()
    people.learn(Author("u1"), Author("a1", "agent"))
    people.learn(Author("u1", name="张三"), Author("a1", "agent", "助手"))
    assert find_mentions("@u1 @张三", people) == [Author("u1", name="张三")]
    assert people.shown(Author("a1", "agent", "a1")).name == "助手"
    assert people.shown(Author("a2", "agent")) == Author("a2", "agent")
    assert people.shown(Author("")) == DEFAULT_AGENT


def test_long_names_cannot_be_mentioned_and_do_no_harm(people: People) -> None:
    people.learn(Author("long", name="长" * (MAX_NAME + 1)), Author("", name=""))
    assert find_mentions("@" + "长" * (MAX_NAME + 1), people) == []


def test_so_many_mentions_count_and_no_more(people: People) -> None:
    text = " ".join(f"@agent:a{number}" for number in range(1_000))
    assert len(find_mentions(text, people)) == MAX_MENTIONS


texts = st.text(st.sampled_from("@＠agent:：张三丰李四助手Bot bob，。.-_\n\0") | st.characters())


@given(texts, st.lists(st.builds(Author, texts, st.sampled_from(["user", "agent"]), texts)))
def test_no_text_and_no_names_are_too_strange(text: str, authors: list[Author]) -> None:
    people = People()
    people.learn(*PEOPLE, *authors)
    found = find_mentions(text, people)
    assert len(set(found)) == len(found) <= text.count("@") + text.count("＠")


@given(st.sampled_from(PEOPLE), texts, st.sampled_from(["，", " ", "。", "！", "\n", "@", ""]))
def test_a_known_name_is_found_wherever_it_stands(who: Author, before: str, after: str) -> None:
    people = People()
    people.learn(*PEOPLE)
    prefix = "@agent:" if who.type == "agent" else "@"
    text = f"{before} {prefix}{who.name}{after}"
    assert who in find_mentions(text, people)


@pytest.mark.parametrize("unit", ["@", "@a", "@张三", "@agent:", "@agent:x", "＠", "@" + "长" * 63])
def test_the_time_is_linear(unit: str) -> None:
    people = People()
    people.learn(*(Author("长" * n, name="长" * n) for n in range(1, MAX_NAME)))

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        started = time.process_time()
        find_mentions(text, people)
        return time.process_time() - started

    seconds(1_000)
    assert seconds(400_000) < 40 * max(seconds(40_000), 0.002)
