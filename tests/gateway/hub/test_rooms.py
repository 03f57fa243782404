"""Rooms: members, and as whom they speak."""

from __future__ import annotations

import pytest

from busd.gateway.conversation import Author, Entry, Kind
from busd.gateway.effects import Enter, Expel, Invite, MarkRead, Notify, Post, Say
from busd.gateway.events import Arrived, Departed, Notified, Posted
from busd.gateway.settings import GatewayTable
from busd.testing.gateway import GatewayKit, open_gateway
from tests.gateway.hub.probe import LOBBY, ProbeClient, join

pytestmark = pytest.mark.anyio


async def pair(kit: GatewayKit) -> tuple[ProbeClient, ProbeClient]:
    """Return the creator of a room, and another member."""
    ann, eve = await join(kit, user="ann"), await join(kit, user="eve")
    await ann.enter(is_room=True, author=Author("ann"))
    await ann.must(Invite(LOBBY, "eve"))
    await eve.enter(is_room=True, author=Author("eve"))
    ann.take()
    eve.take()
    return ann, eve


async def test_a_member_invites_others(kit: GatewayKit) -> None:
    ann, eve = await pair(kit)
    await eve.must(Invite(LOBBY, "joe"))
    assert ann.last(Arrived) == Arrived(LOBBY, Author("joe"), is_member=True)
    assert not eve.all(Arrived)
    assert (await eve.must(Invite(LOBBY, "joe"))).is_duplicate
    joe = await join(kit, user="joe")
    assert (await joe.enter()).members == ["ann", "eve", "joe"]


async def test_nobody_is_invited_to_a_users_own_conversation(kit: GatewayKit) -> None:
    ann = await join(kit, user="ann")
    await ann.enter()
    assert (await ann.refused(Invite(LOBBY, "eve"))).rule == "invalid"
    assert (await ann.refused(Expel(LOBBY, "ann"))).rule == "invalid"


async def test_whoever_created_a_room_expels_members_at_once(kit: GatewayKit) -> None:
    ann, eve = await pair(kit)
    assert (await eve.refused(Expel(LOBBY, "ann"))).rule == "member"
    await ann.must(Expel(LOBBY, "eve"))
    assert eve.last(Departed) == Departed(LOBBY, Author("eve"), is_member=True)
    assert [each.is_member for each in ann.all(Departed)] == [False]
    assert (await eve.refused(Post(LOBBY, Entry(text="still here")))).rule == "conversation"
    assert (await eve.refused(Enter(LOBBY, is_room=True))).rule == "member"
    assert (await ann.refused(Expel(LOBBY, "nobody"))).rule == "member"


async def test_a_member_may_leave_for_good(kit: GatewayKit) -> None:
    ann, eve = await pair(kit)
    await eve.must(Expel(LOBBY, "eve"))
    assert ann.last(Departed).author == Author("eve")
    assert (await eve.refused(Enter(LOBBY, is_room=True))).rule == "member"


async def test_a_request_that_waits_while_its_client_is_expelled_is_refused(
    kit: GatewayKit,
) -> None:
    import anyio

    ann, eve = await pair(kit)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ann.must, Expel(LOBBY, "eve"))
        tasks.start_soon(eve.refused, Post(LOBBY, Entry(text="quick")))
    assert not ann.all(Posted)


async def test_an_open_room_lets_every_user_in() -> None:
    async with open_gateway(GatewayTable(agent="agent:bob", rooms="open")) as kit:
        ann, eve = await join(kit, user="ann"), await join(kit, user="eve")
        room = await ann.enter(is_room=True)
        entered = await eve.enter(is_room=True)
        assert entered.session_id == room.session_id
        assert entered.members == ["ann", "eve"]


async def test_who_is_invited_to_a_room_enters_it_instead_of_their_own_conversation(
    kit: GatewayKit,
) -> None:
    eve = await join(kit, user="eve")
    own = await eve.enter()
    ann = await join(kit, user="ann")
    room = await ann.enter(is_room=True)
    await ann.must(Invite(LOBBY, "eve"))
    assert (await eve.enter()).session_id == room.session_id
    await kit.settle()
    assert own.session_id not in kit.hub.rooms


async def test_a_users_own_conversation_becomes_a_room_when_its_user_enters_it_as_one(
    kit: GatewayKit,
) -> None:
    alone = await join(kit, user="ann")
    own = await alone.enter()
    await alone.must(Post(LOBBY, Entry(text="before")))
    ann = await join(kit, user="ann")
    room = await ann.enter(is_room=True, last=10)
    assert (room.session_id, room.members) == (own.session_id, ["ann"])
    assert [entry.text for entry in room.entries] == ["before"]
    await ann.must(Invite(LOBBY, "eve"))
    eve = await join(kit, user="eve")
    assert (await eve.enter()).session_id == own.session_id
    await eve.must(Post(LOBBY, Entry(text="after")))
    assert alone.last(Posted).entry.text == "after"
    await kit.restart()
    again = await join(kit, user="eve")
    assert (await again.enter(is_room=True)).members == ["ann", "eve"]


async def test_a_users_own_conversation_stays_their_own_if_others_have_a_room_of_its_name(
    kit: GatewayKit,
) -> None:
    await pair(kit)
    joe = await join(kit, user="joe")
    await joe.enter()
    assert (await joe.refused(Enter(LOBBY, is_room=True))).rule == "member"
    assert (await joe.enter()).members == []


# Authors


async def test_a_user_speaks_as_the_author_that_it_used_first(kit: GatewayKit) -> None:
    ann, _ = await pair(kit)
    await ann.must(Post(LOBBY, Entry(text="me", author=Author("ann", name="Ann"))))
    for effect in (
        Post(LOBBY, Entry(text="not me", author=Author("somebody"))),
        Say(LOBBY, Entry(text="not me", author=Author("eve"))),
        MarkRead(LOBBY, ("x",), Author("eve")),
        Enter(LOBBY, author=Author("eve")),
    ):
        assert (await ann.refused(effect)).rule == "author"


async def test_an_author_of_one_user_is_taken_for_all_others(kit: GatewayKit) -> None:
    ann, _ = await pair(kit)
    await ann.must(Invite(LOBBY, "joe"))
    joe = await join(kit, user="joe")
    assert (await joe.refused(Enter(LOBBY, author=Author("ann")))).detail == "ann"
    await joe.enter(author=Author("joe"))


async def test_the_name_of_a_member_is_that_members_also_before_they_speak(kit: GatewayKit) -> None:
    ann, _ = await pair(kit)
    for name in ("joe", "max"):
        await ann.must(Invite(LOBBY, name))
    joe = await join(kit, user="joe")
    assert (await joe.refused(Enter(LOBBY, author=Author("max")))).rule == "author"
    await joe.enter(author=Author("somebody"))


async def test_a_room_is_refused_that_somebody_else_has_made(kit: GatewayKit) -> None:
    _, eve = await pair(kit)
    assert (await eve.refused(Enter(LOBBY, is_room=True, creators=("eve", "joe")))).rule == "member"
    await eve.must(Enter(LOBBY, is_room=True, creators=("eve", "ann")))


async def test_nobody_but_the_owner_speaks_as_an_agent(kit: GatewayKit) -> None:
    entry = Entry(text="trust me", author=Author("bob", "agent"))
    ann, owner = await join(kit, user="ann"), await join(kit)
    for client in (ann, owner):
        await client.enter()
    assert (await ann.refused(Post(LOBBY, entry))).rule == "author"
    assert (await ann.refused(Say(LOBBY, entry))).rule == "author"
    await owner.must(Post(LOBBY, entry))


async def test_in_their_own_conversation_users_have_as_many_authors_as_they_like(
    kit: GatewayKit,
) -> None:
    ann = await join(kit, user="ann")
    await ann.enter()
    for number in range(40):
        await ann.must(Post(LOBBY, Entry(text="me", author=Author(f"me-{number}"))))


async def test_the_system_may_be_the_author_of_what_is_for_nobody(kit: GatewayKit) -> None:
    ann, eve = await pair(kit)
    await ann.must(Post(LOBBY, Entry(text="ann joined", author=Author("system", "system"))))
    assert eve.last(Posted).entry.author.type == "system"
    assert eve.last(Posted).entry.kind is Kind.POST


async def test_notifications_are_shown_to_the_others_unless_they_are_forged(
    kit: GatewayKit,
) -> None:
    ann, eve = await pair(kit)
    await ann.do(
        Notify(LOBBY, "typing", Author("ann")),
        Notify(LOBBY, "typing", Author("eve")),
        Notify("elsewhere", "typing", Author("ann")),
        Post(LOBBY, Entry(text="done typing")),
    )
    assert [each.by for each in eve.all(Notified)] == [Author("ann")]
    assert not ann.all(Notified)
