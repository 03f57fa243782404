"""What agents say during a turn, and how turns end."""

from __future__ import annotations

import pytest

from busd.gateway.conversation import Author, Kind, TurnEnd
from busd.gateway.effects import Cancel
from busd.gateway.events import Delta, Replied, Stepped, TurnBegan, TurnEnded, TurnFailed
from busd.testing.gateway import GatewayAgent, GatewayKit, Words
from tests.gateway.hub.probe import LOBBY, ProbeClient, join

pytestmark = pytest.mark.anyio


async def begin(kit: GatewayKit, text: str = "hello") -> tuple[ProbeClient, GatewayAgent, Words]:
    """Return a client, the agent and the words that it has got."""
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    await ann.say(text)
    await kit.settle()
    ann.take()
    return ann, bob, bob.words()


async def test_deltas_are_shown_with_all_of_the_text_so_far(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    words.tell("turn.delta", text="Hel")
    words.tell("turn.delta", text="lo")
    await kit.settle()
    assert [each.text for each in ann.all(Delta)] == ["Hel", "lo"]
    assert ann.last(Delta).turn.text == "Hello"


async def test_a_client_that_enters_during_a_turn_gets_the_text_so_far(kit: GatewayKit) -> None:
    _, _, words = await begin(kit)
    words.tell("turn.delta", text="Hel")
    await kit.settle()
    eve = await join(kit)
    entered = await eve.enter()
    assert [each.text for each in entered.turns] == ["Hel"]
    words.reply("Hello")
    await kit.settle()
    assert eve.last(Replied).turn is not None


async def test_steps_are_shown_with_their_arguments_and_results(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    words.tell("turn.step", id="s1", name="search", tool="web", arguments={"q": 1})
    words.tell("turn.step", id="s1", name="search", status="failed", code="missing", payload=[1])
    words.tell("turn.step", id=2, parent="s1", status="new in a later version")
    await kit.settle()
    one, two, three = (each.step for each in ann.all(Stepped))
    assert (one.tool, bytes(one.arguments or b""), one.status) == ("web", b'{"q":1}', "in_progress")
    assert (two.status, two.code, bytes(two.payload or b"")) == ("failed", "missing", b"[1]")
    assert (three.id, three.parent, three.status) == ("2", "s1", "in_progress")
    assert ann.last(Stepped).turn.has_steps


async def test_a_turn_that_its_agent_fails_is_shown_once(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    words.tell("turn.error", code="broken", message="no luck", severity="critical", details=[1])
    words.tell("turn.error", code="broken", message="no luck")
    words.reply("Sorry, that failed: no luck")
    await kit.settle()
    assert ann.seen() == ["TurnFailed", "TurnEnded"]


async def test_a_failure_is_kept_under_the_id_that_was_promised_for_the_reply(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    await ann.say("hello")
    await kit.settle()
    bob.words().tell("turn.error", code="broken", message="no luck", recoverable=False)
    await kit.settle()
    failed = ann.last(TurnFailed)
    assert failed.entry.id == ann.last(TurnBegan).turn.reply_id
    assert (failed.entry.kind, failed.entry.text) == (Kind.FAILURE, "no luck")
    assert (failed.code, failed.severity, failed.recoverable) == ("broken", "error", False)
    entered = await (await join(kit)).enter(last=5)
    assert [each.kind for each in entered.entries] == [Kind.WORDS, Kind.FAILURE]


async def test_a_reply_is_kept_under_the_id_that_was_promised_for_it(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    done = await ann.say("hello")
    await kit.settle()
    bob.words().reply("hi", message_id="the agent's own")
    await kit.settle()
    entry = ann.last(Replied).entry
    assert entry.id == ann.last(TurnBegan).turn.reply_id
    assert done.entry is not None
    assert entry.turn == entry.reply_to == done.entry.id


async def test_a_reply_that_is_delivered_again_is_shown_once(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    for _ in range(3):
        words.reply("once", message_id="reply-1")
        await kit.settle()
    assert ann.seen() == ["Replied", "TurnEnded"]


async def test_a_second_reply_to_a_turn_is_shown_without_a_turn(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    words.reply("one")
    words.reply("two")
    words.tell("turn.delta", text="too late")
    await kit.settle()
    assert ann.seen() == ["Replied", "TurnEnded", "Replied"]


async def test_what_an_agent_says_of_itself_is_shown_without_a_turn(kit: GatewayKit) -> None:
    ann, bob, words = await begin(kit)
    words.reply("done")
    await kit.settle()
    ann.take()
    bob.send(words.chat, "tg_reply", {"text": "by the way"})
    await kit.settle()
    assert ann.last(Replied).turn is None
    assert not ann.last(Replied).is_own


async def test_a_reply_that_names_no_turn_ends_the_only_one(kit: GatewayKit) -> None:
    """Agents that know only the second version of the protocol leave the member out."""
    ann, bob, words = await begin(kit)
    bob.send(words.chat, "tg_reply", {"text": "hi"})
    await kit.settle()
    assert ann.seen() == ["Replied", "TurnEnded"]


async def test_two_replies_by_one_id_of_two_agents_are_both_shown(kit: GatewayKit) -> None:
    ann, bob, words = await begin(kit)
    eve = kit.agent("eve")
    bob.send(words.chat, "tg_reply", {"text": "of bob"}, "m1", {"reply_to_message_id": "?"})
    eve.send(words.chat, "tg_reply", {"text": "of eve"}, "m1", {"reply_to_message_id": "?"})
    await kit.settle()
    assert [each.entry.text for each in ann.all(Replied)] == ["of bob", "of eve"]
    assert len({each.entry.id for each in ann.all(Replied)}) == 2


async def test_another_agent_does_not_end_the_turn(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    eve = kit.agent("eve")
    eve.tell(words.chat, "turn.delta", {"turn": words.id, "text": "mine"})
    eve.tell(words.chat, "turn.error", {"turn": words.id, "code": "x", "message": "y"})
    eve.send(words.chat, "tg_reply", {"text": "z"}, beside={"reply_to_message_id": words.id})
    await kit.settle()
    assert not ann.all(TurnEnded)
    assert not ann.all(Delta)
    assert ann.last(Replied).turn is None


async def test_only_agents_speak_to_a_conversation(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    stranger = kit.bus.join("tg:1")
    sent = stranger.send(words.chat, {"type": "tg_reply", "content": {"text": "fake"}})
    await kit.settle()
    assert "only agents" in sent.result.acks[0].message
    assert ann.events == []


async def test_a_message_that_cannot_be_read_is_refused_with_the_name_of_the_member(
    kit: GatewayKit,
) -> None:
    _, bob, words = await begin(kit)
    for payload, said in (
        ({"type": "tg_reply", "content": {}}, "text"),
        ({"type": "agent_event", "content": {"event": "turn.delta", "data": {}}}, "text"),
        ({"type": "tg_message", "content": {"text": "x"}}, "tg_reply, agent_event"),
    ):
        sent = bob.peer.send(words.chat, payload)
        await kit.settle()
        ack = sent.result.acks[0]
        assert (ack.success, ack.should_retry) == (False, False)
        assert said in ack.message


async def test_unknown_events_are_acked(kit: GatewayKit) -> None:
    ann, bob, words = await begin(kit)
    payload = {"type": "agent_event", "content": {"event": "turn.new", "data": {}}}
    sent = bob.peer.send(f"events:{words.chat}", payload)
    await kit.settle()
    assert sent.result.acks[0].success
    assert ann.events == []


# Agents that name the message they got


async def test_an_agent_may_name_the_message_it_got_instead_of_the_words(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    words_id, words.id = words.id, words.handed.message_id
    words.tell("turn.delta", text="Hel")
    words.reply("Hello")
    words.reply("Hello", message_id="r1")
    await kit.settle()
    assert ann.last(Delta).turn.id == words_id
    first, second = ann.all(Replied)
    assert first.turn is not None
    assert first.entry.turn == second.entry.turn == second.entry.reply_to == words_id
    assert ann.last(TurnEnded).how is TurnEnd.REPLIED


async def test_it_may_do_so_after_a_restart_of_the_gateway(kit: GatewayKit) -> None:
    _, _, words = await begin(kit)
    await kit.restart()
    ann = await join(kit)
    await ann.enter()
    words_id, words.id = words.id, words.handed.message_id
    words.reply("Hello")
    await kit.settle()
    assert ann.last(Replied).entry.turn == words_id
    assert ann.last(TurnEnded).turn.id == words_id


async def test_such_a_reply_to_a_cancelled_turn_is_not_shown(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    await ann.must(Cancel(LOBBY))
    ann.take()
    words.id = words.handed.message_id
    words.reply("late")
    await kit.settle()
    assert ann.events == []


# Cancelling


async def test_a_cancelled_turn_ends_at_once_and_its_agent_is_told(kit: GatewayKit) -> None:
    ann, bob, words = await begin(kit)
    await ann.must(Cancel(LOBBY, words.id))
    await kit.settle()
    assert ann.seen() == ["TurnEnded", "Done"]
    told = bob.event()
    assert (told["event"], told["turn"]) == ("turn.cancel", words.id)
    assert told["channel"] == "probe"


async def test_nothing_of_a_cancelled_turn_is_shown(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    await ann.must(Cancel(LOBBY))
    ann.take()
    words.tell("turn.delta", text="late")
    words.tell("turn.step", id="s", name="late")
    words.tell("turn.error", code="late", message="late")
    words.reply("late")
    await kit.settle()
    assert ann.events == []


async def test_new_words_interrupt_the_turn_before_them(kit: GatewayKit) -> None:
    ann, bob, words = await begin(kit)
    await ann.say("no, this", interrupts=True)
    await kit.settle()
    assert ann.seen() == ["TurnEnded", "Done", "Said", "TurnBegan"]
    assert bob.event()["turn"] == words.id
    second = bob.words()
    words.reply("late")
    second.reply("in time")
    await kit.settle()
    assert [each.entry.text for each in ann.all(Replied)] == ["in time"]


async def test_to_cancel_what_has_ended_changes_nothing(kit: GatewayKit) -> None:
    ann, bob, words = await begin(kit)
    words.reply("done")
    await kit.settle()
    ann.take()
    await ann.must(Cancel(LOBBY, words.id))
    await ann.must(Cancel(LOBBY, "unknown"))
    await kit.settle()
    assert ann.seen() == ["Done", "Done"]
    assert not bob.peer.inbox


async def test_a_cancelled_turn_of_two_agents_is_cancelled_for_both(kit: GatewayKit) -> None:
    one, two = kit.agent("one"), kit.agent("two")
    ann = await join(kit)
    await ann.enter()
    await ann.say("you two", agents=("one", "two"))
    await kit.settle()
    id_of_words = one.words().id
    two.words()
    await ann.must(Cancel(LOBBY, id_of_words))
    await kit.settle()
    assert [each.how for each in ann.all(TurnEnded)] == [TurnEnd.CANCELLED] * 2
    assert one.event()["turn"] == two.event()["turn"] == id_of_words


# Time


async def test_a_turn_without_a_sign_fails_and_is_cancelled(kit: GatewayKit) -> None:
    ann, bob, words = await begin(kit)
    await kit.advance(899)
    assert ann.events == []
    await kit.advance(2)
    assert ann.last(TurnFailed).code == "timeout"
    assert ann.seen() == ["TurnFailed", "TurnEnded"]
    assert bob.event()["turn"] == words.id


async def test_each_sign_of_an_agent_gives_it_time_again(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    for _ in range(4):
        await kit.advance(600)
        words.tell("turn.step", id="s", name="still at work")
        await kit.settle()
    assert ann.all(TurnFailed) == []


async def test_a_reply_after_the_time_is_up_is_shown_without_a_turn(kit: GatewayKit) -> None:
    ann, _, words = await begin(kit)
    await kit.advance(901)
    ann.take()
    words.reply("at last")
    await kit.settle()
    assert ann.last(Replied).turn is None
    assert ann.seen() == ["Replied"]


# Whose turn it is


async def test_a_turn_belongs_to_the_client_that_began_it_while_that_is_here(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    ann, again = await join(kit), await join(kit)
    for client in (ann, again):
        await client.enter(author=Author("ann"))
    await ann.say("hello")
    await kit.settle()
    words = bob.words()
    assert (ann.last(TurnBegan).is_own, again.last(TurnBegan).is_own) == (True, False)
    await ann.leave()
    words.tell("turn.delta", text="Hi")
    await kit.settle()
    assert again.last(Delta).is_own


async def test_a_turn_of_one_author_is_not_that_of_another(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann, eve = await join(kit), await join(kit)
    await ann.enter(author=Author("ann"))
    await eve.enter(author=Author("eve"))
    await ann.say("hello")
    await kit.settle()
    await ann.leave()
    bob.words().reply("hi")
    await kit.settle()
    assert not eve.last(Replied).is_own
