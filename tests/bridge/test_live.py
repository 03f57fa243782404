"""Live turns: what is shown while an agent works is not posted a second time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from busd import Bridge
from busd.bridge import Inbound, LiveTurn, Pace
from busd.bridge.live import MAX_TEXT_BYTES
from tests.bridge.toy import QUICK, Place, ToyAgent, poll_until

pytestmark = pytest.mark.anyio


class Showing:
    """A `show` function that posts drafts, prompts and errors."""

    def __init__(self, place: Place, name: str = "draft") -> None:
        self._toy = place.toy
        self._name = name
        self.drafts: dict[str, str] = {}  # the text of each, by external id
        self.prompts: list[str] = []
        self.errors: list[str] = []

    async def show(self, live: LiveTurn) -> None:
        await self._toy.show(live)
        if live.text:
            live.draft = live.draft or f"{self._name}{len(self.drafts) + 1}"
            self.drafts[live.draft] = live.text
        if live.prompt and not live.prompt.external_id:
            self.prompts.append(live.prompt.text)
            live.prompt.external_id = f"prompt{len(self.prompts)}"
        if live.error and not live.error.external_id:
            self.errors.append(live.error.message)
            live.error.external_id = "error1"


@asynccontextmanager
async def asked(
    place: Place, bridge: Bridge, *, external_id: str = "q1"
) -> AsyncIterator[ToyAgent]:
    """Run a bridge whose user has asked an agent something."""
    async with place.agent() as agent, place.serving(bridge):
        agent.bus.on("tg_message")(lambda _: None)
        await bridge.push(question(external_id), to=agent.bus.client_id)
        yield agent


def question(external_id: str = "q1", **more: Any) -> Inbound:
    return Inbound(chat_id="1", text="?", sender_id="ann", external_id=external_id, **more)


def showing_bridge(place: Place, pace: Pace = QUICK) -> tuple[Bridge, Showing]:
    bridge, showing = place.bridge(pace), Showing(place)
    bridge.shows(showing.show)
    return bridge, showing


async def test_a_streamed_answer_is_edited_into_the_reply(place: Place) -> None:
    bridge, showing = showing_bridge(place)
    async with asked(place, bridge) as agent:
        await place.toy.wait_until(lambda: place.toy.shown)
        first = place.toy.shown[0]
        assert (first.turn, first.is_working, first.text) == ("q1", True, "")
        for word in ("to ", "be ", "or"):
            await agent.tell("turn.delta", turn="q1", text=word)
        await agent.tell("turn.step", turn="q1", id="s1", name="think")
        await poll_until(lambda: "s1" in place.toy.shown[-1].steps)
        assert showing.drafts == {"draft1": "to be or"}
        await agent.reply("to be or not to be", to="q1")
        await agent.reply("that is the question", to="q1")
    drafts = [(each.text, each.draft) for each in place.toy.posted]
    assert drafts == [("to be or not to be", "draft1"), ("that is the question", "")]


async def test_a_draft_is_edited_by_the_next_process_too(place: Place) -> None:
    bridge, showing = showing_bridge(place)
    async with asked(place, bridge) as agent:
        await agent.tell("turn.delta", turn="q1", text="to be")
        await poll_until(lambda: showing.drafts)
    bridge, showing = place.bridge(), Showing(place, "new")
    bridge.shows(showing.show)
    async with place.agent() as agent, place.serving(bridge):
        await agent.tell("turn.delta", turn="q1", text=" or")
        await poll_until(lambda: showing.drafts)
        assert place.toy.shown[-1].is_cut
        assert showing.drafts == {"draft1": " or"}
        await agent.reply("to be or not", to="q1")
    assert [each.draft for each in place.toy.posted] == ["draft1"]


async def test_a_turn_that_was_cancelled_is_shown_a_last_time(place: Place) -> None:
    bridge, showing = showing_bridge(place)
    async with asked(place, bridge) as agent:
        agent.bus.on("agent_event")(lambda _: None)
        await agent.bus.subscribe("system:route")
        await agent.tell("turn.delta", turn="q1", text="to be")
        await poll_until(lambda: showing.drafts)
        await bridge.cancel("1")
        await place.toy.wait_until(lambda: not place.toy.shown[-1].is_working)
        assert place.toy.shown[-1].draft == "draft1"


async def test_typing_is_shown_again_while_the_agent_works(place: Place) -> None:
    bridge, _ = showing_bridge(place, Pace(show_seconds=0.0, refresh_seconds=0.05))
    async with asked(place, bridge) as agent:
        await place.toy.wait_until(lambda: len(place.toy.shown) >= 4)
        await agent.reply("done", to="q1")
        count = len(place.toy.shown)
        await agent.reply("and this", to="q1")
        assert len(place.toy.shown) == count


async def test_shows_are_coalesced_and_never_delay_replies(place: Place) -> None:
    bridge, showing = showing_bridge(place, Pace(show_seconds=30.0))
    async with asked(place, bridge) as agent:
        await place.toy.wait_until(lambda: place.toy.shown)
        for _ in range(50):
            await agent.tell("turn.delta", turn="q1", text="x")
        await agent.reply("done", to="q1")
    assert len(place.toy.shown) == 1
    assert place.toy.texts() == ["done"]
    assert showing.drafts == {}


async def test_a_reply_does_not_wait_for_a_show_that_hangs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busd.bridge.lanes._SHOW_GRACE_SECONDS", 0.1)
    bridge = place.bridge()

    @bridge.shows
    async def show(live: LiveTurn) -> None:
        await place.toy.show(live)
        await anyio.sleep_forever()

    async with asked(place, bridge) as agent:
        await place.toy.wait_until(lambda: place.toy.shown)
        assert (await agent.reply("done", to="q1")).acks[0].success
    assert place.toy.texts() == ["done"]


async def test_a_prompt_that_was_shown_is_not_posted(place: Place) -> None:
    bridge, showing = showing_bridge(place, Pace(show_seconds=30.0))
    async with asked(place, bridge) as agent:
        for number in (1, 2):  # the second time it is asked again
            data: dict[str, Any] = {
                "turn": "q1",
                "id": "p1",
                "text": f"Sure? {number}",
                "options": ["yes", "no"],
            }
            await agent.tell("turn.prompt", **data)
            await agent.reply(f"Sure? {number}\n1. yes\n2. no", to="q1", prompt_id="p1")
        assert showing.prompts == ["Sure? 1", "Sure? 2"]
        prompt = place.toy.shown[-1].prompt
        assert prompt is not None
        assert [each.label for each in prompt.options] == ["yes", "no"]
        assert prompt.input_type == "radio"
        assert not place.toy.shown[-1].is_working
        await bridge.push(question("a1", prompt_id="p1"), to=agent.bus.client_id)
        await agent.reply("done", to="q1")
    assert place.toy.texts() == ["done"]


@pytest.mark.parametrize("why", ["no show", "event missed", "show fails", "show ignores it"])
async def test_a_prompt_that_was_not_shown_is_posted(place: Place, why: str) -> None:
    bridge = place.bridge()

    async def show(live: LiveTurn) -> None:
        if why == "show fails":
            raise ValueError

    if why != "no show":
        bridge.shows(show)
    async with asked(place, bridge) as agent:
        if why != "event missed":
            await agent.tell("turn.prompt", turn="q1", id="p1", text="Sure?")
        await agent.reply("Sure?", to="q1", prompt_id="p1")
    assert place.toy.texts() == ["Sure?"]


async def test_an_error_that_was_shown_is_not_posted_by_the_next_process_either(
    place: Place,
) -> None:
    bridge, showing = showing_bridge(place)
    async with asked(place, bridge) as agent:
        await agent.tell("turn.error", turn="q1", code="timeout", message="too slow")
        await poll_until(lambda: showing.errors)
    bridge, showing = showing_bridge(place)
    async with place.agent() as agent, place.serving(bridge):
        assert (await agent.reply("Sorry, that failed: too slow", to="q1")).acks[0].success
        assert (await agent.reply("But now it is done", to="q1")).acks[0].success
    assert place.toy.texts() == ["But now it is done"]


async def test_a_bridge_that_shows_no_errors_posts_them(place: Place) -> None:
    async with asked(place, place.bridge()) as agent:
        await agent.tell("turn.error", turn="q1", message="too slow")
        await agent.reply("Sorry, that failed: too slow", to="q1")
    assert place.toy.texts() == ["Sorry, that failed: too slow"]


async def test_the_text_of_a_turn_is_bounded(place: Place) -> None:
    live = LiveTurn("1", "q1")
    for _ in range(5):
        live.add_text("ä" * 100_000)
    assert len(live.text.encode()) == MAX_TEXT_BYTES


async def test_a_prompt_or_step_that_is_too_large_is_not_kept(place: Place) -> None:
    bridge, showing = showing_bridge(place)
    async with asked(place, bridge) as agent:
        large = "x" * 100_000
        await agent.tell("turn.step", turn="q1", id="s1", tool="t", payload=large)
        await poll_until(lambda: "s1" in place.toy.shown[-1].steps)
        assert place.toy.shown[-1].steps["s1"].payload is UNSET
        await agent.tell("turn.prompt", turn="q1", id="p1", text=large)
        await agent.reply(large, to="q1", prompt_id="p1")
    assert showing.prompts == []
    assert place.toy.texts() == [large]


async def test_events_of_no_turn_are_passed_on(place: Place) -> None:
    bridge = place.bridge()
    heard: list[tuple[str, str, bytes]] = []

    @bridge.hears
    async def hear(event: Any) -> None:
        heard.append((event.chat_id, event.name, bytes(event.data)))

    async with place.agent() as agent, place.serving(bridge):
        await agent.tell("task.updated", task_id="t1")
        await agent.tell("turn.delta", turn="q1", text="not this")
    assert heard == [("1", "task.updated", b'{"task_id":"t1"}')]


async def test_a_turn_whose_push_was_refused_is_not_shown(place: Place) -> None:
    bridge, _ = showing_bridge(place, Pace(refresh_seconds=0.01))
    async with place.serving(bridge):
        with pytest.raises(Exception, match="nobody is connected"):
            await bridge.push(question(), to="agent:nobody", expect=True)
        count = len(place.toy.shown)
        await anyio.sleep(0.1)
        assert len(place.toy.shown) == count
