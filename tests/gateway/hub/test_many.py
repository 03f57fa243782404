"""Many clients in one room, and many rooms."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from busd.gateway.conversation import Author
from busd.gateway.events import Delta, Done, Replied, Said, TurnEnded
from busd.gateway.hub import MAX_HELD_BY_USER
from busd.gateway.refusal import Refusal
from busd.gateway.stored import Conversation
from busd.testing.gateway import GatewayKit
from tests.gateway.hub.probe import ProbeClient, join

pytestmark = pytest.mark.anyio

_CLIENTS = 1_000


async def test_a_thousand_clients_in_one_room_all_see_everything_once_in_order(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    clients = [await join(kit) for _ in range(_CLIENTS)]
    for number, client in enumerate(clients):
        await client.enter(author=Author(f"a{number}"), client=f"tab-{number}")
        client.take()

    async def speak(client: ProbeClient, number: int) -> None:
        await client.say(str(number), agents=None)

    async with anyio.create_task_group() as tasks:
        for number, client in enumerate(clients[:20]):
            tasks.start_soon(speak, client, number)
    await clients[0].say("hello")
    await kit.settle()
    words = bob.words()
    for part in ("a", "b", "c"):
        words.tell("turn.delta", text=part)
    words.reply("abc")
    await kit.settle()
    for client in clients:
        numbers = [each.entry.number for each in client.all(Said)]
        assert numbers == list(range(1, 22))
        assert [each.text for each in client.all(Delta)] == ["a", "b", "c"]
        assert len(client.all(Replied)) == len(client.all(TurnEnded)) == 1
    own = [len([each for each in client.all(Said) if each.is_own]) for client in clients]
    assert own == [2] + [1] * 19 + [0] * (_CLIENTS - 20)


async def test_a_crowd_does_not_delay_another_conversation(kit: GatewayKit) -> None:
    """What is shown to a thousand clients comes in portions: others are served between them."""
    bob = kit.agent("bob")
    crowd = [await join(kit) for _ in range(_CLIENTS)]
    for client in crowd:
        await client.enter("crowd")
    ann = await join(kit)
    await ann.enter("quiet")
    await crowd[0].say("hello", "crowd")
    await kit.settle()
    words = bob.words()
    for _ in range(100):
        words.tell("turn.delta", text="x" * 50)
    shown_between_turns = []

    async def take_turns() -> None:
        before = 0
        while before < 100:
            await checkpoint()
            shown = len(crowd[-1].all(Delta))
            shown_between_turns.append(shown - before)
            before = shown

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        await ann.say("and me", "quiet", agents=None)
        await kit.settle()
    assert max(shown_between_turns) <= 2
    assert len(ann.all(Done)) == 2  # of entering, and of the words


async def test_many_conversations_are_held_and_let_go(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    clients = [await join(kit) for _ in range(100)]

    async def converse(client: ProbeClient, number: int) -> None:
        await client.enter(f"c{number}")
        await client.say(str(number), f"c{number}")

    async with anyio.create_task_group() as tasks:
        for number, client in enumerate(clients):
            tasks.start_soon(converse, client, number)
    await kit.settle()
    overview = await kit.hub.counted()
    assert (overview.conversations, overview.turns, overview.users) == (100, 100, 1)
    assert overview.stored is not None
    assert (overview.stored.conversations, overview.stored.entries) == (100, 100)
    assert overview.sessions == {"probe": 100}
    for _ in clients:
        words = bob.words()
        words.reply(f"re {words.text}")
    await kit.settle()
    for number, client in enumerate(clients):
        assert [each.entry.text for each in client.all(Replied)] == [f"re {number}"]
        await client.leave()
    await kit.settle()
    overview = kit.hub.overview()
    assert (overview.conversations, overview.turns, overview.unsent) == (0, 0, 0)
    assert not kit.hub.sessions


async def test_one_user_cannot_hold_all_conversations(kit: GatewayKit) -> None:
    hub = kit.hub

    def conversation(number: int) -> Conversation:
        return Conversation(
            session_id=f"s{number}",
            address=f"probe:s{number}",
            prefix="probe",
            channel="probe",
            user="ann",
            name=f"c{number}",
        )

    rooms = [hub.hold(conversation(number)) for number in range(MAX_HELD_BY_USER)]
    with pytest.raises(Refusal, match="too many conversations of ann are open"):
        hub.hold(conversation(MAX_HELD_BY_USER))
    dora = await join(kit, user="dora")
    assert (await dora.enter("mine")).is_new
    hub.release(rooms[0])
    rooms.append(hub.hold(conversation(MAX_HELD_BY_USER)))
    for room in rooms:
        hub.release(room)
