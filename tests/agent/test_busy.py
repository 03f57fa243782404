"""What a message does that comes during a turn, and how a turn is cancelled."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from busd.agent.turn import Turn
from busd.agent.turns import MAX_WAITING
from tests.agent.conftest import MakeAgent, User, serving

pytestmark = pytest.mark.anyio


class Gate:
    """A handler that shows each turn it begins and waits to be let go on."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self._go_on = anyio.Event()

    async def answer(self, turn: Turn) -> str:
        await turn.delta(f"begun {turn.text}")
        try:
            await self._go_on.wait()
        finally:
            self.ended.append(turn.text)
        return f"done {turn.text}"

    def open(self) -> None:
        self._go_on.set()


@pytest.fixture
def gate(anyio_backend: Any) -> Gate:
    return Gate()


async def begun(user: User, text: str) -> None:
    assert (await user.event("turn.delta"))["text"] == f"begun {text}"


async def test_messages_wait_for_their_turn_in_order(user: User, make_agent: MakeAgent) -> None:
    gate = Gate()
    async with user, serving(make_agent(gate.answer)):
        for word in "abc":
            assert (await user.write(word))["content"]["message"] == "queued"
        gate.open()
        for word in "abc":
            await begun(user, word)
            assert await user.text() == f"done {word}"


async def test_too_many_that_wait_are_refused(user: User, make_agent: MakeAgent) -> None:
    gate = Gate()
    async with user, serving(make_agent(gate.answer)):
        await user.write("first")
        await begun(user, "first")
        for number in range(MAX_WAITING):
            await user.write(str(number))
        assert await user.write("more", "m") == "agent is busy: 100 messages wait already"
        gate.open()
        for _ in range(MAX_WAITING * 2 + 1):
            await user.next()
        await user.write("more", "m")
        await begun(user, "more")


async def test_a_busy_agent_may_reject(user: User, make_agent: MakeAgent) -> None:
    gate = Gate()
    async with user, serving(make_agent(gate.answer, when_busy="reject")):
        await user.write("a")
        await begun(user, "a")
        payload = {"type": "tg_message", "content": {"text": "b"}}
        [ack] = (await user.bus.send(user.agent, payload, message_id="b")).acks
        assert (ack.success, ack.message) == (False, "agent is busy with another message")
        assert (ack.should_retry, ack.retry_seconds) == (True, 5.0)
        gate.open()
        assert await user.text() == "done a"
        await user.write("b", "b")  # the same message again is not one that was taken
        await begun(user, "b")


async def test_a_message_may_interrupt_the_turn_of_the_same_sender(
    user: User, make_agent: MakeAgent
) -> None:
    gate = Gate()
    async with user, serving(make_agent(gate.answer, when_busy="interrupt")):
        await user.write("a")
        await begun(user, "a")
        assert (await user.write("b"))["content"]["message"] == "interrupts"
        await begun(user, "b")
        assert gate.ended == ["a"]
        gate.open()
        assert await user.text() == "done b"


async def test_a_message_does_not_interrupt_the_turn_of_another(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    gate = Gate()
    async with user, stranger, serving(make_agent(gate.answer, when_busy="interrupt")):
        await user.write("a")
        await begun(user, "a")
        assert (await stranger.write("b"))["content"]["message"] == "queued"
        gate.open()
        assert await user.text() == "done a"
        await begun(user, f"[from:{stranger.name}] b")


async def test_messages_that_wait_may_be_merged(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    gate = Gate()
    async with user, stranger, serving(make_agent(gate.answer, when_busy="merge")):
        await user.write("a")
        await begun(user, "a")
        said = [
            (await who.write(text, text))["content"]["message"]
            for who, text in ((user, "b"), (user, "c"), (stranger, "x"), (user, "d"))
        ]
        assert said == ["queued", "merged", "queued", "queued"]
        gate.open()
        assert await user.text() == "done a"
        await begun(user, "b\nc")
        reply = await user.reply()
        assert (reply["reply_to_message_id"], reply["content"]["text"]) == ("c", "done b\nc")
        await begun(user, f"[from:{stranger.name}] x")
        assert (await user.write("b", "b"))["content"]["message"] == "taken already"


async def test_nothing_of_a_cancelled_turn_leaks(user: User, make_agent: MakeAgent) -> None:
    async def stubborn(turn: Turn) -> str:
        await turn.delta("begun")
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await turn.delta("late")
                await turn.reply("late")
                await turn.fail("late", "late")
        return "late"

    async with user, serving(make_agent(stubborn)):
        for number in (1, 2):
            await user.write("hi", f"m{number}")
            assert (await user.event("turn.delta"))["turn"] == f"m{number}"
            ack = await user.tell("turn.cancel", {"turn": f"m{number}"})
            assert ack["content"]["message"] == "cancelled"
        assert (await user.write("hi", "m1"))["content"]["message"] == "taken already"


async def test_a_turn_that_waits_may_be_cancelled(user: User, make_agent: MakeAgent) -> None:
    gate = Gate()
    async with user, serving(make_agent(gate.answer)):
        for word in "abc":
            await user.write(word, word)
        await begun(user, "a")
        assert (await user.tell("turn.cancel", {"turn": "b"}))["content"]["message"] == "cancelled"
        gate.open()
        assert await user.text() == "done a"
        await begun(user, "c")
        assert await user.text() == "done c"
        assert gate.ended == ["a", "c"]


async def test_only_who_takes_part_cancels_a_turn(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    gate = Gate()
    async with user, stranger, serving(make_agent(gate.answer)):
        await user.write("a")
        await begun(user, "a")
        said = await stranger.tell("turn.cancel", {})
        assert said == "turn.cancel: the turn is somebody else's"
        gate.open()
        assert await user.text() == "done a"


async def test_to_cancel_what_is_over_is_no_mistake(user: User, make_agent: MakeAgent) -> None:
    gate = Gate()
    async with user, serving(make_agent(gate.answer)):
        for data in ({}, {"turn": "never"}, {"turn": None}):
            ack = await user.tell("turn.cancel", data)
            assert ack["content"]["message"] == "no such turn, or it is over"


async def test_other_events_are_acked(user: User, make_agent: MakeAgent) -> None:
    gate = Gate()
    async with user, serving(make_agent(gate.answer)):
        assert (await user.tell("spawned", {}))["content"]["status"] == "ok"


# Prompts


async def ask(turn: Turn) -> str:
    answer = await turn.ask("Really?", options=["yes", "no"], timeout_seconds=30)
    return f"so {answer}"


async def test_a_prompt_is_answered_by_its_id(user: User, make_agent: MakeAgent) -> None:
    async with user, serving(make_agent(ask)):
        await user.write("hi", "m")
        prompt = await user.prompt()
        assert prompt == {
            "turn": "m",
            "id": "m.prompt.1",
            "input_type": "binary_choice",
            "text": "Really?",
            "required": True,
            "options": ["yes", "no"],
            "timeout_seconds": 30.0,
        }
        ack = await user.write("yes", prompt_id=prompt["id"])
        assert ack["content"]["message"] == "answers a prompt"
        assert await user.text() == "so yes"
        late = await user.write("no", prompt_id=prompt["id"])
        assert late == "that prompt is not open: it was answered, cancelled, or its time is over"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("rye\nspelt", "rye\nspelt"),
        ("spelt, rye", "rye\nspelt"),
        ("1, SP", "rye\nspelt"),
        ("w；w", "wheat"),
        ("wheat", "wheat"),
    ],
)
async def test_a_checkbox_takes_several_options(
    user: User, make_agent: MakeAgent, said: str, meant: str
) -> None:
    async def choose(turn: Turn) -> str:
        options = ["rye", "wheat", "spelt"]
        return await turn.ask("Which?", options=options, input_type="checkbox")

    async with user, serving(make_agent(choose)):
        await user.write("hi")
        await user.prompt()
        ack = await user.write("rye, oats")
        assert ack["content"]["message"] == "not one of the options; asked again"
        await user.prompt()
        await user.write(said)
        assert await user.text() == meant


async def test_an_answer_that_is_no_option_asks_again(user: User, make_agent: MakeAgent) -> None:
    async with user, serving(make_agent(ask)):
        await user.write("hi")
        first = await user.prompt()
        for typo in ("yno", "delete everything, and be quick about it, will you"):
            ack = await user.write(typo)
            assert ack["content"]["message"] == "not one of the options; asked again"
            again = await user.prompt()
            assert (again["id"], again["options"]) == (first["id"], ["yes", "no"])
            assert again["text"].endswith("” is not one of the options. Really?")
            assert len(again["text"]) < 100
        await user.write("N", prompt_id=first["id"])
        assert await user.text() == "so no"


async def test_words_right_after_an_answer_are_a_message_of_their_own(
    user: User, make_agent: MakeAgent
) -> None:
    async def ask_once(turn: Turn) -> str:
        return await turn.ask("Really?") if turn.text == "hi" else f"you said {turn.text}"

    async with user, serving(make_agent(ask_once)):
        await user.write("hi", "m")
        await user.prompt()
        for text in ("yes", "more"):  # at once: the turn has not gone on when the second comes
            await user.bus.post(user.agent, {"type": "tg_message", "content": {"text": text}})
        assert [await user.text(), await user.text()] == ["yes", "you said more"]


async def test_a_question_that_may_be_skipped_takes_an_empty_answer(
    user: User, make_agent: MakeAgent
) -> None:
    async def ask_softly(turn: Turn) -> str:
        return repr(await turn.ask("Colour?", options=["red", "blue"], required=False))

    async with user, serving(make_agent(ask_softly)):
        await user.write("hi")
        await user.prompt()
        await user.write(" ")
        assert await user.text() == "''"


async def test_the_only_prompt_is_answered_by_the_next_words_of_its_user(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    async with user, stranger, serving(make_agent(ask)):
        await user.write("hi")
        prompt = await user.prompt()
        assert (await stranger.write("no"))["content"]["message"] == "queued"
        said = await stranger.write("no", prompt_id=prompt["id"])
        assert said == "that prompt was put to somebody else"
        assert (await user.write("yes"))["content"]["message"] == "answers a prompt"
        assert await user.text() == "so yes"
        await user.prompt()  # of the stranger's words


async def test_of_two_prompts_each_gets_its_own_answer(user: User, make_agent: MakeAgent) -> None:
    async def ask_both(turn: Turn) -> str:
        said: dict[str, str] = {}

        async def ask_one(name: str) -> None:
            said[name] = await turn.ask(name)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_one, "a")
            tasks.start_soon(ask_one, "b")
        return f"{said['a']} {said['b']}"

    async with user, serving(make_agent(ask_both)):
        await user.write("hi")
        came = [(await user.next()).payload["content"] for _ in range(4)]
        prompts = [each["data"] for each in came if each.get("event") == "turn.prompt"]
        assert {each.get("prompt_id") for each in came} == {None, *(p["id"] for p in prompts)}
        assert {each["input_type"] for each in prompts} == {"text"}
        assert (await user.write("?"))["content"]["message"] == "queued"
        for each in prompts:
            await user.write(f"{each['text']}!", prompt_id=each["id"])
        assert await user.text() == "a! b!"


async def test_a_prompt_that_nobody_answers_runs_out(user: User, make_agent: MakeAgent) -> None:
    async def ask_in_vain(turn: Turn) -> str:
        return await turn.ask("Anybody?", options=["a", "b", "c"], timeout_seconds=0.05)

    async with user, serving(make_agent(ask_in_vain)):
        await user.write("hi")
        assert (await user.prompt())["input_type"] == "radio"
        assert (await user.event("turn.error"))["code"] == "prompt_timeout"
        assert "nobody answered" in await user.text()


async def test_merging_has_an_end(user: User, make_agent: MakeAgent, gate: Gate) -> None:
    async with user, serving(make_agent(gate.answer, when_busy="merge")) as agent:
        await user.write("first")
        await begun(user, "first")
        said = [(await user.write("x"))["content"]["message"] for _ in range(MAX_WAITING + 1)]
        assert said == ["queued", *["merged"] * (MAX_WAITING - 1), "queued"]
        for _ in range(3):
            await user.write("y" * 500_000)
        assert max(len(turn.message.text) for turn in agent.turns.waiting) < 1_100_000
