"""What goes to the bus: in order, once, and after the bus or the gateway was away."""

from __future__ import annotations

import anyio
import pytest

from busd.gateway.conversation import TurnEnd
from busd.gateway.effects import Cancel
from busd.gateway.events import Prompted, Replied, Said, TurnBegan, TurnEnded, TurnFailed
from busd.gateway.outbox import _PATIENCE_SECONDS
from busd.gateway.settings import GatewayTable
from busd.gateway.store_limits import StoreLimits
from busd.testing.gateway import GatewayAgent, GatewayKit, open_gateway
from tests.gateway.hub.probe import LOBBY, ProbeClient, join

pytestmark = pytest.mark.anyio


async def entered(kit: GatewayKit) -> tuple[ProbeClient, GatewayAgent]:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter()
    await kit.settle()
    ann.take()
    return ann, bob


async def wait_for(agent: GatewayAgent, count: int) -> None:
    with anyio.fail_after(10):
        while len(agent.peer.inbox) < count:
            await anyio.sleep(0.01)


async def test_words_are_kept_while_the_bus_is_away_and_sent_in_order(kit: GatewayKit) -> None:
    ann, bob = await entered(kit)
    kit.line.lose()
    for number in range(5):
        await ann.say(str(number))
    await ann.must(Cancel(LOBBY, ann.all(TurnBegan)[1].turn.id))
    assert len(ann.all(Said)) == 5
    await kit.advance(10_000)  # no time is up for words that wait
    assert not ann.all(TurnFailed)
    assert kit.hub.overview().unsent == 6
    kit.line.restore()
    await kit.settle()
    texts = []
    for _ in range(5):
        words = bob.words()
        texts.append(words.text)
        await kit.settle()
    assert texts == ["0", "1", "2", "3", "4"]
    assert bob.event()["event"] == "turn.cancel"
    words.reply("all of it")
    await kit.settle()
    assert ann.last(Replied).entry.text == "all of it"
    assert kit.hub.overview().unsent == 0


async def test_words_that_were_on_the_way_when_the_line_was_lost_arrive_once(
    kit: GatewayKit,
) -> None:
    ann, bob = await entered(kit)
    await ann.say("hello")
    await kit.settle()
    first = bob.next()  # not acked
    kit.line.lose()
    kit.line.restore()
    await kit.settle()
    assert not bob.peer.inbox  # the bus recognizes them
    first.ack()
    await kit.settle()
    assert kit.hub.overview().unsent == 0
    assert not ann.all(TurnFailed)


async def test_an_agent_that_acks_late_does_not_hold_up_a_cancel(kit: GatewayKit) -> None:
    ann, bob = await entered(kit)
    await ann.say("hello")
    await wait_for(bob, 1)
    await ann.must(Cancel(LOBBY))
    await wait_for(bob, 2)
    assert [each.payload["type"] for each in bob.peer.inbox] == ["tg_message", "agent_event"]
    assert _PATIENCE_SECONDS < 1


async def test_words_for_an_agent_that_is_away_wait_for_it(kit: GatewayKit) -> None:
    ann, bob = await entered(kit)
    bob.peer.leave()
    await ann.say("hello")
    await kit.settle()
    assert not ann.all(TurnFailed)
    assert kit.hub.overview().unsent == 0
    kit.agent("bob").words().reply("I am back")
    await kit.settle()
    assert ann.last(TurnEnded).how is TurnEnd.REPLIED


async def test_a_mention_of_nobody_fails_at_once(kit: GatewayKit) -> None:
    ann, _ = await entered(kit)
    await ann.say("hello", agents=("nobody",))
    await kit.settle()
    failed = ann.last(TurnFailed)
    assert (failed.code, failed.message) == ("agent_refused", "agent:nobody is not on the bus")
    assert ann.seen() == ["Done", "Said", "TurnBegan", "TurnFailed", "TurnEnded"]


async def test_an_agent_that_refuses_the_words_fails_the_turn(kit: GatewayKit) -> None:
    ann, bob = await entered(kit)
    await ann.say("hello")
    await kit.settle()
    bob.next().fail("I do not talk to you")
    await kit.settle()
    assert ann.last(TurnFailed).message == "I do not talk to you"
    assert ann.last(TurnEnded).how is TurnEnd.FAILED


async def test_an_agent_that_is_busy_gets_the_words_again(kit: GatewayKit) -> None:
    ann, bob = await entered(kit)
    await ann.say("hello")
    await kit.settle()
    bob.next().fail("busy", retry_seconds=3)
    await kit.settle()
    assert not bob.peer.inbox
    await kit.advance(4)
    bob.words().reply("now")
    await kit.settle()
    assert ann.last(Replied).entry.text == "now"


@pytest.mark.parametrize("said", ["answers a prompt", "not one of the options; asked again"])
async def test_words_that_the_agent_takes_for_an_answer_begin_no_turn(
    kit: GatewayKit, said: str
) -> None:
    ann, bob = await entered(kit)
    await ann.say("paint it")
    await kit.settle()
    words = bob.words()
    words.tell("turn.prompt", id="p1", text="Which?")
    await kit.settle()
    assert ann.all(Prompted)
    await ann.say("red")
    await kit.settle()
    bob.next().ack({"type": "general_response", "content": {"status": "ok", "message": said}})
    await kit.settle()
    assert [each.turn.id for each in ann.all(TurnEnded)] == [ann.all(TurnBegan)[1].turn.id]
    assert not bob.peer.inbox
    words.reply("done")
    await kit.settle()
    assert len(ann.all(TurnEnded)) == 2


@pytest.mark.parametrize(
    ("said", "ended"), [("merged", [1]), ("interrupts", [0, 1]), ("queued", [])]
)
async def test_turns_that_the_agent_ends_for_new_words_are_ended(
    kit: GatewayKit, said: str, ended: list[int]
) -> None:
    ann, bob = await entered(kit)
    for text in ("one", "two", "three"):
        await ann.say(text)
        await kit.settle()
        message = said if text == "three" else "queued"
        content = {"status": "ok", "message": message}
        bob.next().ack({"type": "general_response", "content": content})
        await kit.settle()
    began = [each.turn.id for each in ann.all(TurnBegan)]
    assert [each.turn.id for each in ann.all(TurnEnded)] == [began[number] for number in ended]


async def test_more_unsent_messages_than_allowed_are_refused() -> None:
    settings = GatewayTable(agent="agent:bob", store=StoreLimits(outbox=3))
    async with open_gateway(settings) as kit:
        ann, _ = await entered(kit)
        kit.line.lose()
        for _ in range(3):
            await ann.say("hello")
        refused = await ann.do(Cancel(LOBBY))
        assert (refused.rule, refused.detail) == ("limit", "outbox")  # type: ignore[union-attr]
        assert not ann.all(TurnEnded)
        kit.line.restore()
        await kit.settle()


# The gateway is started again


async def test_a_gateway_that_is_started_again_takes_up_what_is_open(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter(client="tab")
    await ann.say("paint it")
    await kit.settle()
    words = bob.words()
    words.tell("turn.delta", text="I begin")
    words.tell("turn.prompt", id="p1", text="Which?", timeout_seconds=60)
    await kit.settle()
    kit.line.lose()
    await ann.say("and that")
    await kit.restart(seconds_away=20)
    assert kit.hub.overview().turns == 2
    assert bob.words().text == "and that"
    ann = await join(kit)
    again = await ann.enter(client="tab")
    assert [each.text for each in again.turns] == ["I begin", ""]
    assert [each.seconds_left for each in again.prompts] == [40]
    await ann.answer("p1", "red")
    await kit.settle()
    assert bob.words().text == "red"
    words.reply("It is red")
    await kit.settle()
    assert ann.last(Replied).turn is not None
    assert ann.last(Replied).is_own


async def test_a_turn_survives_a_kill_of_the_gateway(kit: GatewayKit) -> None:
    ann, bob = await entered(kit)
    await ann.say("hello")
    await kit.restart(is_killed=True)
    words = bob.words()
    await kit.settle()
    await kit.restart(is_killed=True)
    assert not bob.peer.inbox
    words.reply("hi")
    await kit.settle()
    ann = await join(kit)
    assert [each.text for each in (await ann.enter(last=9)).entries] == ["hello", "hi"]


async def test_a_reply_to_a_gateway_that_is_away_is_shown_when_it_is_back(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")
    ann = await join(kit)
    await ann.enter(client="tab")
    await ann.say("hello")
    await kit.settle()
    words = bob.words()
    await kit.settle()
    kit.line.lose()
    words.reply("anybody there?")
    await kit.restart()
    assert kit.hub.overview().turns == 0
    ann = await join(kit)
    again = await ann.enter(client="tab")
    assert [each.text for each in again.entries] == ["anybody there?"]


async def test_late_output_of_a_turn_that_was_cancelled_before_a_restart_is_not_shown(
    kit: GatewayKit,
) -> None:
    ann, bob = await entered(kit)
    await ann.say("hello")
    await kit.settle()
    words = bob.words()
    await ann.must(Cancel(LOBBY))
    await kit.restart()
    ann = await join(kit)
    await ann.enter()
    words.reply("late")
    await kit.settle()
    assert not ann.all(Replied)


async def test_a_prompt_whose_time_was_up_while_the_gateway_was_away_is_closed(
    kit: GatewayKit,
) -> None:
    ann, bob = await entered(kit)
    await ann.say("hello")
    await kit.settle()
    bob.words().tell("turn.prompt", id="p1", text="Which?", timeout_seconds=60)
    await kit.restart(seconds_away=61)
    await kit.advance(1)
    await kit.advance(6)
    ann = await join(kit)
    again = await ann.enter(last=1)
    assert (again.turns, again.prompts) == ([], [])
    assert again.entries[0].text == "nobody answered the question in time"


async def test_the_gateway_is_subscribed_to_exactly_the_conversations_that_it_holds(
    kit: GatewayKit,
) -> None:
    bob = kit.agent("bob")

    def subscriptions() -> set[str]:
        assert kit.line._peer is not None
        return set(kit.line._patterns)

    ann = await join(kit)
    first = await ann.enter("one")
    second = await ann.enter("two")
    await ann.say("hello", "two")
    await kit.settle()
    both = {f"probe:{each.session_id}" for each in (first, second)}
    assert subscriptions() == both | {f"events:{each}" for each in both}
    await ann.leave()
    await kit.settle()
    held = f"probe:{second.session_id}"
    words = bob.words()
    await kit.settle()
    assert subscriptions() == {held, f"events:{held}"}
    words.reply("bye")
    await kit.settle()
    assert subscriptions() == set()
