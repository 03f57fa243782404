"""Entering conversations: whose they are, and what a client has missed."""

from __future__ import annotations

import pytest

from busd.gateway.conversation import Author, Entry
from busd.gateway.effects import Authenticate, Enter, Leave, Post, Say
from busd.gateway.events import Arrived, Departed, Done, Entered, Posted, Refused, Replied, Said
from busd.gateway.hub import KnownUser
from busd.testing.gateway import GatewayKit
from tests.gateway.hub.probe import LOBBY, Other, ProbeClient, join

pytestmark = pytest.mark.anyio


async def test_a_conversation_is_new_once(kit: GatewayKit) -> None:
    ann = await join(kit)
    first = await ann.enter()
    again = await ann.enter()
    assert (first.is_new, again.is_new) == (True, False)
    assert first.session_id == again.session_id
    assert ann.seen() == ["Entered", "Done", "Entered", "Done"]


async def test_two_users_with_the_same_name_of_a_conversation_are_apart(kit: GatewayKit) -> None:
    ann, eve = await join(kit, user="ann"), await join(kit, user="eve")
    one, two = await ann.enter(), await eve.enter()
    assert one.session_id != two.session_id
    await ann.say("private", agents=None)
    assert not eve.all(Said)
    assert (await eve.enter(last=10)).entries == []


async def test_a_client_that_has_not_entered_is_refused(kit: GatewayKit) -> None:
    ann = await join(kit)
    assert (await ann.refused(Say(LOBBY, Entry(text="hi")))).rule == "conversation"
    await ann.enter()
    await ann.must(Leave(LOBBY))
    refused = await ann.refused(Say(LOBBY, Entry(text="hi")))
    assert (refused.rule, refused.detail) == ("conversation", LOBBY)


@pytest.mark.parametrize("name", ["", "x" * 257, "line\nbreak"])
async def test_a_name_that_cannot_be_is_refused(kit: GatewayKit, name: str) -> None:
    ann = await join(kit)
    refused = await ann.refused(Enter(name))
    assert (refused.rule, refused.detail) == ("invalid", "conversation")


async def test_a_client_enters_no_more_conversations_than_allowed(kit: GatewayKit) -> None:
    ann = await join(kit)
    for number in range(256):
        await ann.enter(f"c{number}")
    assert (await ann.refused(Enter("one more"))).rule == "limit"
    await ann.enter("c1")  # entered already


async def test_the_others_see_who_comes_and_goes(kit: GatewayKit) -> None:
    ann, eve = await join(kit), await join(kit)
    await ann.enter(author=Author("ann"))
    ann.take()
    await eve.enter(author=Author("eve"))
    await eve.enter(author=Author("eve"))
    await eve.must(Leave(LOBBY))
    await eve.enter(author=Author("eve"))
    await eve.leave()
    await kit.settle()
    assert ann.seen() == ["Arrived", "Departed", "Arrived", "Departed"]
    assert (await ann.enter()).present == [Author("owner")]


# The past


async def said(kit: GatewayKit, *texts: str) -> ProbeClient:
    ann = await join(kit)
    await ann.enter()
    for text in texts:
        await ann.say(text, id=f"id-of-{text}", agents=None)
    return ann


async def test_a_client_gets_the_last_entries_or_those_after_one(kit: GatewayKit) -> None:
    await said(kit, "a", "b", "c")
    ann = await join(kit)
    assert (await ann.enter()).entries == []
    assert [each.text for each in (await ann.enter(last=2)).entries] == ["b", "c"]
    assert [each.text for each in (await ann.enter(after="id-of-a")).entries] == ["b", "c"]
    assert [each.text for each in (await ann.enter(after="id-of-a", last=1)).entries] == ["c"]
    assert [each.text for each in (await ann.enter(after="gone")).entries] == ["a", "b", "c"]


async def test_at_most_500_entries_are_shown(kit: GatewayKit) -> None:
    await said(kit, *(str(number) for number in range(510)))
    ann = await join(kit)
    assert len((await ann.enter(last=10_000)).entries) == 500
    assert len((await ann.enter(after="id-of-1")).entries) == 500


async def test_a_client_with_a_name_gets_what_it_has_missed(kit: GatewayKit) -> None:
    ann = await said(kit, "before its first time")
    tab = await join(kit)
    assert (await tab.enter(client="tab")).entries == []
    await ann.say("seen", agents=None)
    await tab.leave()
    await ann.say("missed", agents=None)
    tab = await join(kit)
    assert [each.text for each in (await tab.enter(client="tab")).entries] == ["missed"]
    await tab.leave()
    await kit.settle()
    assert (await (await join(kit)).enter(client="tab")).entries == []


async def test_another_users_client_of_the_same_name_has_a_place_of_its_own(
    kit: GatewayKit,
) -> None:
    ann = await join(kit, user="ann")
    await ann.enter(is_room=True, client="tab")
    await ann.must(Post(LOBBY, Entry(text="one")))
    await kit.hub.store.run(lambda store: store.add_member(ann.last(Entered).session_id, "eve"))
    eve = await join(kit, user="eve")
    assert (await eve.enter(client="tab")).entries == []


async def test_a_reply_that_came_while_nobody_was_there_is_shown_on_return(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter(client="tab")
    await ann.say("hello")
    await kit.settle()
    words = bob.words()
    await ann.leave()
    await kit.settle()
    words.reply("while you were out")
    await kit.settle()
    assert not kit.hub.rooms
    ann = await join(kit)
    entered = await ann.enter(client="tab")
    assert [each.text for each in entered.entries] == ["while you were out"]
    assert entered.turns == []


async def test_what_an_agent_says_to_a_conversation_without_clients_waits_on_the_bus(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    await ann.say("hello")
    await kit.settle()
    words = bob.words()
    words.reply("done")
    await ann.leave()
    await kit.settle()
    assert not kit.hub.rooms
    words.reply("one more thing")
    await kit.settle()
    ann = await join(kit)
    assert [each.text for each in (await ann.enter(last=9)).entries] == ["hello", "done"]
    await kit.settle()
    assert [each.entry.text for each in ann.all(Replied)] == ["one more thing"]


async def test_what_was_shown_to_a_connection_that_is_not_known_to_be_lost_is_shown_again(
    kit: GatewayKit,
) -> None:
    ann = await said(kit)
    lost = await join(kit)
    await lost.enter(client="tab")
    await ann.say("into the void", agents=None)
    back = await join(kit)
    assert [each.text for each in (await back.enter(client="tab")).entries] == ["into the void"]


async def test_what_was_shown_is_known_after_the_gateway_was_killed(kit: GatewayKit) -> None:
    """The place of a client is recorded while it is there, not only when it leaves."""
    bob = kit.agent("bob")
    tab = await join(kit)
    entered = await tab.enter(client="tab")
    await tab.say("hello")
    await kit.settle()
    bob.words().reply("hi")
    await kit.settle()
    kit.hub.look()
    await kit.settle()
    key = "owner\ntab"
    assert await kit.store.run(lambda store: store.cursor(entered.session_id, key)) == 2


# Rooms


async def test_a_room_is_one_conversation_of_its_members(kit: GatewayKit) -> None:
    ann, eve = await join(kit, user="ann"), await join(kit, user="eve", dialect=Other)
    entered = await ann.enter(is_room=True)
    assert entered.members == ["ann"]
    assert (await eve.refused(Enter(LOBBY, is_room=True))).rule == "member"
    await kit.store.run(lambda store: store.add_member(entered.session_id, "eve"))
    assert (await eve.enter()).session_id == entered.session_id
    assert ann.last(Arrived).author == Author("eve")
    await eve.must(Post(LOBBY, Entry(text="here I am")))
    assert ann.last(Posted).entry.author == Author("eve")


async def test_a_room_is_nothing_to_users_who_are_no_members(kit: GatewayKit) -> None:
    ann, eve = await join(kit, user="ann"), await join(kit, user="eve")
    room = await ann.enter(is_room=True)
    own = await eve.enter()
    assert own.is_new
    assert own.session_id != room.session_id


# Who a client is


async def test_nobody_does_anything_before_it_has_authenticated(kit: GatewayKit) -> None:
    ann = await join(kit, user="")
    for effect in (Enter(LOBBY), Say(LOBBY, Entry(text="hi")), Leave(LOBBY)):
        assert (await ann.refused(effect)).rule == "unauthenticated"
    assert not kit.hub.rooms


async def test_a_token_tells_who_a_client_is(kit: GatewayKit) -> None:
    kit.tokens["secret"] = KnownUser("ann")
    ann = await join(kit, user="")
    assert (await ann.refused(Authenticate("wrong"))).rule == "authentication"
    done = await ann.must(Authenticate("secret"))
    assert done.detail == "ann"
    assert (ann.dialect.hello.user, ann.dialect.hello.is_owner) == ("ann", False)
    await ann.enter()
    assert ann.last(Entered).present == [Author("ann")]


async def test_a_client_in_a_conversation_stays_who_it_is(kit: GatewayKit) -> None:
    kit.tokens.update(ann=KnownUser("ann"), eve=KnownUser("eve"))
    ann = await join(kit, user="ann")
    await ann.enter()
    await ann.must(Authenticate("ann"))
    assert (await ann.refused(Authenticate("eve"))).rule == "authentication"
    owner = await join(kit)
    await owner.enter()
    assert (await owner.must(Authenticate("eve"))).detail == "eve"
    assert owner.client.session.user == "owner"


async def test_the_effects_of_a_frame_are_performed_one_after_the_other(kit: GatewayKit) -> None:
    kit.tokens["secret"] = KnownUser("ann")
    ann = await join(kit, user="")
    enter, words = Enter(LOBBY), Say(LOBBY, Entry(text="hi"), agents=None)
    await ann.do(words, Authenticate("secret"), enter, words)
    outcomes = [each for each in ann.events if isinstance(each, Done | Refused)]
    assert [type(each) for each in outcomes] == [Refused, Done, Done, Done]
    assert [outcomes[2].request is enter, outcomes[3].request is words] == [True, True]
    assert not ann.all(Departed)


async def test_a_client_that_says_later_who_it_is_arrives_under_that_name(
    kit: GatewayKit,
) -> None:
    ann, eve = await join(kit, user="ann"), await join(kit, user="eve")
    room = await ann.enter(is_room=True)
    await kit.store.run(lambda store: store.add_member(room.session_id, "eve"))
    ann.take()
    await eve.enter()
    await eve.enter(author=Author("evelyn"))
    await eve.enter(author=Author("evelyn"))
    changes = [
        (type(each), each.author.id) for each in ann.take() if isinstance(each, Arrived | Departed)
    ]
    assert changes == [(Arrived, "eve"), (Departed, "eve"), (Arrived, "evelyn")]
