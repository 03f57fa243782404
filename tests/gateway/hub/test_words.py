"""Words: kept, shown to everybody, and answered by an agent."""

from __future__ import annotations

import pytest

from busd.gateway.conversation import Author, Entry, Kind, TurnEnd
from busd.gateway.effects import Say
from busd.gateway.events import Replied, Said, TurnBegan, TurnEnded
from busd.testing.gateway import GatewayKit
from tests.gateway.hub.probe import LOBBY, Other, Probe, join

pytestmark = pytest.mark.anyio


async def test_words_are_answered_by_the_default_agent(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    ann.take()
    done = await ann.say("hello")
    assert done.entry is not None
    assert (done.entry.number, done.entry.kind, done.entry.dialect) == (1, Kind.WORDS, "probe")
    await kit.settle()
    words = bob.words()
    assert (words.text, words.id) == ("hello", done.entry.id)
    assert words.content["channel"] == "probe"
    assert words.chat == f"probe:{words.content['chat_id']}"
    words.reply("hello yourself")
    await kit.settle()
    assert ann.seen() == ["Done", "Said", "TurnBegan", "Replied", "TurnEnded"]
    assert not kit.hub.rooms[words.content["chat_id"]].turns


async def test_two_dialects_in_one_conversation_see_each_others_words(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann, eve = await join(kit), await join(kit, dialect=Other)
    await ann.enter(author=Author("ann"))
    entered = await eve.enter(author=Author("eve"))
    assert entered.present == [Author("ann"), Author("eve")]
    await ann.say("from ann")
    await eve.say("from eve", agents=None)
    await kit.settle()
    bob.words().reply("from bob")
    await kit.settle()
    for client in (ann, eve):
        said = [(each.entry.text, each.entry.author.id) for each in client.all(Said)]
        assert said == [("from ann", "ann"), ("from eve", "eve")]
        assert client.last(Replied).entry.text == "from bob"
        assert client.last(Replied).entry.author == Author("bob", "agent")
        assert client.last(TurnEnded).how is TurnEnd.REPLIED
    assert [each.is_own for each in ann.all(Said)] == [True, False]
    assert [each.is_own for each in eve.all(Said)] == [False, True]
    assert ann.last(TurnBegan).is_own
    assert not eve.last(TurnBegan).is_own


async def test_the_conversation_has_the_channel_of_the_dialect_that_created_it(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    eve, ann = await join(kit, dialect=Other), await join(kit, dialect=Probe)
    await eve.enter()
    await ann.enter()
    await ann.say("hello")
    await kit.settle()
    words = bob.words()
    assert words.content["channel"] == "strange"
    assert words.chat.startswith("other:")


async def test_a_mention_of_two_agents_begins_two_turns(kit: GatewayKit) -> None:
    one, two = kit.agent("one"), kit.agent("two")
    ann = await join(kit)
    await ann.enter()
    await ann.say("you two", agents=("one", "two"))
    await kit.settle()
    assert [each.turn.agent.id for each in ann.all(TurnBegan)] == ["one", "two"]
    second = two.words()
    second.reply("two first")
    await kit.settle()
    one.words().reply("then one")
    await kit.settle()
    replied = [(each.turn.agent.id, each.entry.text) for each in ann.all(Replied) if each.turn]
    assert replied == [("two", "two first"), ("one", "then one")]
    assert len(ann.all(TurnEnded)) == 2


async def test_words_that_are_sent_twice_are_kept_and_asked_once(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    first = await ann.say("hello", id="words-1")
    again = await ann.say("hello", id="words-1", interrupts=True)
    assert not first.is_duplicate
    assert again.is_duplicate
    assert again.entry == first.entry
    await kit.settle()
    bob.words().reply("once")
    await kit.settle()
    assert not bob.peer.inbox
    assert len(ann.all(Said)) == len(ann.all(Replied)) == 1


async def test_the_members_of_an_entry_reach_the_agent(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    entry = Entry(text="hi", thread_id="t1", mentions=(Author("bob", "agent", "Bob"),))
    await ann.must(Say(LOBBY, entry))
    await kit.settle()
    content = bob.words().content
    assert content["thread_id"] == "t1"
    assert content["mentions"] == [{"id": "bob", "type": "agent", "name": "Bob"}]
    assert content["senderId"] == "owner"
