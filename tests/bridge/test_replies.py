"""Replies: each is posted once, in the order of its chat."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from busd import Bridge, Incoming, Refuse
from busd.bridge import MaybePosted, Pace, Part, Reply, SlowDown
from tests.bridge.toy import QUICK, Place, poll_until, refused

pytestmark = pytest.mark.anyio


async def test_replies_of_a_chat_are_posted_in_order_while_other_chats_go_on(place: Place) -> None:
    toy = place.toy
    toy.gates["1"] = anyio.Event()
    async with (
        place.serving() as bridge,
        place.agent() as agent,
        anyio.create_task_group() as tasks,
    ):
        for number in range(20):
            tasks.start_soon(agent.reply, str(number))
            await poll_until(partial(_has_queued, bridge, number + 1))
        assert (await agent.reply("elsewhere", "2")).acks[0].success
        assert toy.texts("1") == []
        toy.gates["1"].set()
        await toy.wait_until(lambda: len(toy.texts("1")) == 20)
    assert toy.texts("1") == [str(number) for number in range(20)]


async def test_a_reply_that_is_delivered_again_is_not_posted_again(place: Place) -> None:
    async with place.agent() as agent:
        for _ in range(2):  # by the same process, and by the next one
            async with place.serving():
                for _ in range(2):
                    assert (await agent.reply("hi", name="one")).acks[0].success
    assert place.toy.texts() == ["hi"]


async def test_an_agent_may_use_an_id_again_in_another_turn(place: Place) -> None:
    async with place.serving(), place.agent() as agent:
        for turn in ("q1", "q2", "q2"):
            await agent.reply(f"answer to {turn}", name="answer", to=turn)
    assert place.toy.texts() == ["answer to q1", "answer to q2"]


async def test_the_status_says_whether_the_other_system_is_there(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with place.serving() as bridge, place.agent() as agent:
        assert (bridge.status.state, bridge.status.posted) == ("waiting", 0)
        await agent.reply("hi")
        assert (bridge.status.state, bridge.status.posted) == ("connected", 1)
        bridge.report("conflict", "somebody else polls with this token")
        await agent.reply("hi again")
        [ack] = (await agent.bus.send(place.name, {"type": "bridge_status"})).acks
        assert ack.read()["state"] == "conflict"
        assert ack.read()["detail"] == "somebody else polls with this token"
    assert "is conflict: somebody else polls" in caplog.text


async def test_two_deliveries_of_one_reply_wait_for_the_same_post(place: Place) -> None:
    toy = place.toy
    toy.gates["1"] = anyio.Event()
    async with place.serving() as bridge, place.agent() as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.reply("hi", name="one"))
            tasks.start_soon(lambda: agent.reply("hi", name="one"))
            await toy.wait_until(lambda: toy.tried)
            assert bridge.status.queue == 1
            toy.gates["1"].set()
        assert bridge.status.queue == 0
    assert toy.texts() == ["hi"]


async def test_a_long_reply_is_posted_in_parts_and_goes_on_where_it_stopped(place: Place) -> None:
    toy = place.toy
    seen: list[tuple[int, int, str]] = []

    def split(reply: Reply) -> list[Part]:
        return [Part(word) for word in reply.text.split()]

    async def post(part: Part) -> str:
        seen.append((part.number, part.total, part.text))
        return await toy.post(part)

    bridge = place.bridge()
    bridge.splits(split)
    bridge.posts(post)
    async with place.serving(bridge), place.agent() as agent:
        toy.problems["1"] = [Refuse("not yet", retry_seconds=0.0)]
        await agent.reply("a b c", name="one")
        toy.problems["2"] = [ValueError("a bug")]
        assert refused(await agent.reply("d e", "2", name="two"))[1]
        assert (await agent.reply("d e", "2", name="two")).acks[0].success
    assert toy.texts("1") == ["a", "b", "c"]
    assert toy.texts("2") == ["d", "e"]
    assert seen[:2] == [(1, 3, "a"), (1, 3, "a")]


async def test_what_is_refused_for_now_is_posted_again_in_place(place: Place) -> None:
    toy = place.toy
    toy.problems["1"] = [Refuse("not yet", retry_seconds=0.01) for _ in range(3)]
    async with (
        place.serving() as bridge,
        place.agent() as agent,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(agent.reply, "one")
        await poll_until(lambda: bridge.status.queue or toy.posted)
        tasks.start_soon(agent.reply, "two")
    assert toy.tried == ["one"] * 4 + ["two"]
    assert [each.is_repeat for each in toy.posted] == [False, False]


async def test_what_is_refused_for_good_is_not_tried_again(place: Place) -> None:
    toy = place.toy
    toy.problems["1"] = [Refuse("the chat is gone")]
    async with place.serving() as bridge, place.agent() as agent:
        assert refused(await agent.reply("one")) == ("the chat is gone", False)
        assert (await agent.reply("two")).acks[0].success
        assert bridge.status.refused == 1
    assert toy.tried == ["one", "two"]


async def test_a_bug_of_the_bridge_is_not_told_to_the_agent(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.toy.problems["1"] = [ValueError("secret detail")]
    async with place.serving(), place.agent() as agent:
        said = refused(await agent.reply("one"))
    assert said == ("the bridge has failed (ValueError)", True)
    assert "secret detail" in caplog.text


async def test_beyond_the_patience_the_bus_keeps_what_waits_in_order(place: Place) -> None:
    toy = place.toy
    toy.problems["1"] = [Refuse("closed for lunch", retry_seconds=0.5)]
    toy.gates["1"] = anyio.Event()
    pace = Pace(patience_seconds=0.1)
    async with place.serving(place.bridge(pace)) as bridge, place.agent() as agent:
        answers: dict[str, tuple[str, object]] = {}

        async def send(text: str) -> None:
            answers[text] = refused(await agent.reply(text, name=text))

        async with anyio.create_task_group() as tasks:
            for queue, text in enumerate(("one", "two", "three"), 1):
                tasks.start_soon(send, text)
                await poll_until(partial(_has_queued, bridge, queue))
            toy.gates["1"].set()
        await send("four")  # behind those before it
    assert answers["one"] == ("closed for lunch", True)
    assert answers["two"] == answers["three"] == ("closed for lunch", True)
    assert answers["four"] == ("earlier replies come first", True)
    assert toy.posted == []


async def test_slow_down_pauses_all_chats(place: Place) -> None:
    toy = place.toy
    toy.problems["1"] = [SlowDown(0.3)]
    async with place.serving() as bridge, place.agent() as agent:
        begun = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.reply, "one")
            await toy.wait_until(lambda: toy.tried)
            tasks.start_soon(agent.reply, "two", "2")
            await poll_until(lambda: bridge.status.paused_until)
            assert toy.posted == []
        assert anyio.current_time() - begun >= 0.3
        assert bridge.status.paused_until == ""
    assert toy.texts("1") == ["one"]
    assert toy.texts("2") == ["two"]


async def test_slow_down_of_one_chat_pauses_that_one_only(place: Place) -> None:
    toy = place.toy
    toy.problems["1"] = [SlowDown(30, everywhere=False)]
    async with (
        place.serving() as bridge,
        place.agent() as agent,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(agent.reply, "one")
        await toy.wait_until(lambda: toy.tried)
        assert (await agent.reply("two", "2")).acks[0].success
        assert bridge.status.paused_until == ""
        tasks.cancel_scope.cancel()
    assert toy.texts("2") == ["two"]


async def test_a_pause_beyond_the_patience_is_told_to_the_bus(place: Place) -> None:
    place.toy.problems["1"] = [SlowDown(1_000)]
    async with place.serving(), place.agent() as agent:
        for chat_id in ("1", "2"):
            [ack] = (await agent.reply("hi", chat_id)).acks
            assert ack.should_retry is True
            assert isinstance(ack.retry_seconds, float)
            assert 900 < ack.retry_seconds <= 1_001
    assert place.toy.tried == ["hi"]


@pytest.mark.parametrize("how", ["says so", "is too slow"])
async def test_a_post_without_outcome_is_repeated_with_a_flag(place: Place, how: str) -> None:
    toy = place.toy
    pace = QUICK
    if how == "says so":
        toy.problems["1"] = [MaybePosted("half a response", retry_seconds=0.0)]
    else:
        pace = Pace(post_seconds=0.2)
        toy.gates["1"] = anyio.Event()
    bridge = place.bridge(pace)
    async with place.serving(bridge), place.agent() as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.reply, "one")
            await toy.wait_until(lambda: len(toy.tried) == 2)
            if toy.gates:
                toy.gates["1"].set()
        assert bridge.status.repeated >= 1
    assert [(each.text, each.is_repeat) for each in toy.posted] == [("one", True)]


async def test_posts_are_spaced_in_a_chat_and_in_all(place: Place) -> None:
    pace = Pace(per_chat_seconds=0.2, total_per_second=20)
    async with place.serving(place.bridge(pace)), place.agent() as agent:
        begun = anyio.current_time()
        for _ in range(3):
            await agent.reply("hi", "1")
        assert anyio.current_time() - begun >= 0.4
        begun = anyio.current_time()
        for number in range(5):
            await agent.reply("hi", f"other{number}")
        assert anyio.current_time() - begun >= 0.2


async def test_beyond_its_bounds_a_bridge_asks_to_come_later(place: Place) -> None:
    toy = place.toy
    toy.gates = {str(number): anyio.Event() for number in range(4)}
    pace = Pace(max_waiting_per_chat=2, max_waiting=3)
    async with place.serving(place.bridge(pace)) as bridge, place.agent() as agent:
        async with anyio.create_task_group() as tasks:
            for number, queue in enumerate((1, 2), 1):
                tasks.start_soon(agent.reply, str(number), "1")
                await poll_until(partial(_has_queued, bridge, queue))
            said = refused(await agent.reply("3", "1"))
            assert said == ("too many replies wait for this chat", True)
            tasks.start_soon(agent.reply, "4", "2")
            await poll_until(lambda: bridge.status.queue == 3)
            said = refused(await agent.reply("5", "3"))
            assert said == ("too many replies wait in this bridge", True)
            for gate in toy.gates.values():
                gate.set()
        assert bridge.status.queue == 0


async def test_the_replies_that_wait_are_bounded_by_their_bytes(place: Place) -> None:
    toy = place.toy
    toy.gates["1"] = anyio.Event()
    pace = Pace(max_waiting_bytes=10_000)
    async with place.serving(place.bridge(pace)) as bridge, place.agent() as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.reply, "x" * 20_000, "1")  # alone
            await poll_until(lambda: bridge.status.queue == 1)
            said = refused(await agent.reply("short", "2"))
            assert said == ("too many replies wait in this bridge", True)
            toy.gates["1"].set()
        assert (await agent.reply("short", "2")).acks[0].success


async def test_only_replies_and_events_are_for_chats(place: Place) -> None:
    async with place.serving() as bridge, place.agent() as agent:
        chat = f"{place.prefix}:1"
        said = refused(await agent.bus.send(chat, {"type": "tg_message", "content": {"text": ""}}))
        assert said[0].startswith("a chat takes tg_reply, agent_event")
        said = refused(await agent.bus.send(chat, {"type": "tg_reply", "content": {}}))
        assert "tg_reply" in said[0]
        assert (await agent.bus.send(chat, {"type": "general_response"})).acks[0].success
        [ack] = (await agent.bus.send(place.name, {"type": "bridge_status"})).acks
        assert ack.read()["is_on_bus"] is True
        assert ack.read()["queue"] == bridge.status.queue == 0


async def test_a_bridge_that_is_stopped_finishes_what_is_under_way_and_nothing_more(
    place: Place,
) -> None:
    toy = place.toy
    toy.gates["1"] = anyio.Event()
    bridge = place.bridge(Pace(stop_seconds=20))
    async with place.agent() as agent, anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as of_bridge:
            await of_bridge.start(bridge.serve)
            tasks.start_soon(agent.keep, "one")
            await toy.wait_until(lambda: toy.tried)
            tasks.start_soon(agent.keep, "two")
            await poll_until(lambda: bridge.status.queue == 2)
            of_bridge.cancel_scope.cancel()
            tasks.start_soon(_open_soon, toy.gates["1"])
        assert toy.texts() == ["one"]
        async with place.serving():  # the bus has kept them
            await toy.wait_until(lambda: len(toy.posted) == 2)
    assert [(each.text, each.is_repeat) for each in toy.posted] == [("one", False), ("two", False)]


async def _open_soon(gate: anyio.Event) -> None:
    await checkpoint()
    gate.set()


async def test_a_post_that_does_not_end_is_given_up_when_the_bridge_is_stopped(
    place: Place,
) -> None:
    toy = place.toy
    toy.gates["1"] = anyio.Event()
    async with place.agent() as agent, anyio.create_task_group() as tasks:
        async with place.serving(place.bridge(Pace(stop_seconds=0.1))):
            tasks.start_soon(agent.keep, "one")
            await toy.wait_until(lambda: toy.tried)
            begun = anyio.current_time()
        assert anyio.current_time() - begun < QUICK.post_seconds / 2
        toy.gates.clear()
        async with place.serving():
            await toy.wait_until(lambda: toy.posted)
    assert [(each.text, each.is_repeat) for each in toy.posted] == [("one", True)]


def _has_queued(bridge: Bridge, count: int) -> bool:
    return bridge.status.queue == count


async def test_a_bridge_takes_messages_that_are_sent_to_its_own_name(place: Place) -> None:
    bridge = place.bridge()

    @bridge.takes("news")
    async def take(message: Incoming) -> dict[str, str]:
        return {"got": message.type}

    async with place.serving(bridge), place.agent() as agent:
        [ack] = (await agent.bus.send(place.name, {"type": "news"})).acks
        assert ack.read() == {"got": "news"}
        words, is_temporary = refused(await agent.bus.send(place.name, {"type": "odd"}))
        assert words == "a bridge itself answers bridge_status, news only"
        assert not is_temporary
