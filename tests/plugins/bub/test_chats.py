"""Chats: which one a message is of, and what can name none."""

from __future__ import annotations

from hashlib import sha256

import pytest

from busd import Refuse, SpawnRequest, TgMessage
from busd_plugins.bub.chats import Chat, chat_of_address, chat_of_message, requested_chat

TYPES = ["telegram", "discord", "web", "terminal"]


def request(chat_id: str, channel: str = "telegram", channel_type: str = "telegram") -> str:
    """Return the address of the chat that is requested, or why it is refused."""
    try:
        asked = SpawnRequest(chat_id=chat_id, channel=channel, channel_type=channel_type)
        return requested_chat(asked, TYPES).talkto
    except Refuse as refusal:
        return refusal.reason


def test_the_agent_of_a_chat_is_named_by_its_hash() -> None:
    digest = sha256(b"telegram:123").hexdigest()[:12]
    assert Chat("telegram", "123").agent_id == f"agent:worker-{digest}"


def test_the_addresses_of_a_channel_begin_with_its_name_those_of_telegram_with_tg() -> None:
    assert request("123") == "tg:123"
    assert request("123", "discord", "discord") == "discord:123"


def test_tg_is_another_name_of_telegram() -> None:
    asked = SpawnRequest(chat_id="1", channel="tg", channel_type="telegram")
    assert requested_chat(asked, TYPES).chat == Chat("telegram", "1")


@pytest.mark.parametrize(
    ("chat_id", "answer"),
    [
        ("../../etc", "tg:../../etc"),
        ("a:b", "tg:a:b"),
        (".", "tg:."),
        ("", "chat_id '' cannot be: it is empty"),
        ("a\0b", "chat_id 'a\\x00b' cannot be: it has spaces, unprintable characters, * or ?"),
        ("a\nb", "chat_id 'a\\nb' cannot be: it has spaces, unprintable characters, * or ?"),
        ("a*", "chat_id 'a*' cannot be: it has spaces, unprintable characters, * or ?"),
        (
            "x" * 10_000,
            f"chat_id '{'x' * 40}…' cannot be: it has 10000 characters, and 245 are the most",
        ),
    ],
    ids=["path", "colon", "dot", "empty", "NUL", "newline", "star", "10,000 characters"],
)
def test_a_chat_id_is_taken_if_an_address_can_have_it(chat_id: str, answer: str) -> None:
    assert request(chat_id) == answer


@pytest.mark.parametrize("channel", ["", "a:b", "../x", "a b", "x" * 33])
def test_a_channel_is_a_short_plain_word(channel: str) -> None:
    assert request("1", channel).startswith("channel ")


@pytest.mark.parametrize("channel", ["agent", "system", "plugin", "events"])
def test_addresses_of_the_bus_itself_are_no_chats(channel: str) -> None:
    answer = f"channel {channel} cannot be: {channel}: is no address of a chat"
    assert request("1", channel) == answer


def test_an_unknown_channel_type_is_refused_with_those_there_are() -> None:
    assert request("1", "telegram", "smoke") == (
        "unknown channel_type 'smoke': this bus has telegram, discord, web, terminal"
        " (setting agents.channel_types)"
    )


@pytest.mark.parametrize(
    ("message", "author", "sender", "chat", "talkto"),
    [
        (TgMessage("hi"), "tg:1", "tg:1", Chat("telegram", "1"), "tg:1"),
        (TgMessage("hi"), "tg:1", "bridge", Chat("telegram", "1"), "tg:1"),
        (TgMessage("hi", chat_id="9"), "tg:1", "tg:1", Chat("telegram", "1"), "tg:1"),
        (TgMessage("hi", channel="telegram"), "tg:1", "b", Chat("telegram", "1"), "tg:1"),
        (TgMessage("hi", channel="web", chat_id="9"), "b", "b", Chat("web", "9"), "web:9"),
        (TgMessage("hi", channel="web"), "tg:1", "b", Chat("web", "tg:1"), "tg:1"),
    ],
)
def test_the_chat_of_a_message_is_its_authors_unless_a_bridge_says_which(
    message: TgMessage, author: str, sender: str, chat: Chat, talkto: str
) -> None:
    placed = chat_of_message(message, author, sender, TYPES)
    assert (placed.chat, placed.talkto) == (chat, talkto)


def test_a_message_that_names_no_chat_is_refused() -> None:
    with pytest.raises(Refuse, match="no chat_id, and bridge is not the address of a chat"):
        chat_of_message(TgMessage("hi", channel="telegram"), "bridge", "bridge", TYPES)


def test_an_address_without_a_prefix_is_of_no_chat() -> None:
    with pytest.raises(Refuse, match="bridge is not the address of a chat"):
        chat_of_address("bridge")
