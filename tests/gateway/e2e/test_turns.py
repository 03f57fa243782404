"""What agents do, as the clients of each format are shown it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.e2e.chat import Chat, Heard
from tests.gateway.e2e.clients import CLIENTS, open_chat, open_chats
from tests.gateway.e2e.place import Place, open_place
from tests.gateway.e2e.tkr_chat import TkrChat
from tests.gateway.e2e.web_chat import AgentIqChat, GroupChat, StageChat

pytestmark = pytest.mark.anyio
# A question of each kind: what is chosen, and what the agent makes of it.
ANSWERS = {
    "text": (["7"], "chosen: 7"),
    "binary_choice": (["yes"], "chosen: yes"),
    "radio": (["wheat"], "chosen: wheat"),
    "dropdown": (["spelt"], "chosen: spelt"),
    "checkbox": (["rye", "spelt"], "chosen: rye\nspelt"),
}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with open_place() as opened:
        yield opened


async def frames_of(chat: Chat, text: str) -> list[Any]:
    """Say something; return all frames until the last one of the answer."""
    before = len(chat.frames)
    words = await chat.say(text)
    await chat.until_end(words)
    return chat.frames[before:]


# In parts


async def test_tkr_shows_an_answer_as_it_grows(place: Place) -> None:
    async with open_chat("tkr", place, "tell-tkr") as chat:
        frames = await frames_of(chat, "tell A|B|C")
        shown = [(each["content"], each["streaming"], each["turn_complete"]) for each in frames]
        parts = [(text, True, False) for text in ("", "A", "AB", "ABC")]
        assert shown == [*parts, ("ABC", False, True)]
        assert len({(each["id"], each["timestamp"]) for each in frames}) == 1


async def test_group_chat_shows_that_an_agent_thinks_and_its_answer(place: Place) -> None:
    async with open_chat("group", place, "tell-group") as chat:
        said, thinking, *_, answer = await frames_of(chat, "tell A|B|C")
        assert said["payload"]["text"] == "tell A|B|C"
        assert (thinking["payload"]["text"], thinking["payload"]["is_thinking"]) == (
            "[正在思考...]",
            True,
        )
        assert (answer["payload"]["text"], answer["payload"]["is_thinking"]) == ("ABC", False)
        assert answer["payload"]["reply_to"] == said["message_id"]
        assert answer["sender"]["type"] == "agent"


async def test_stage_chat_shows_an_answer_in_one_piece(place: Place) -> None:
    async with open_chat("stage", place, "tell-stage") as chat:
        [answer] = await frames_of(chat, "tell A|B|C")
        assert (answer["stage"], answer["content"]) == ("initial_response", "ABC")


async def test_agentiq_shows_the_parts_of_an_answer_and_its_end(place: Place) -> None:
    async with open_chat("agentiq", place, "tell-agentiq") as chat:
        frames = await frames_of(chat, "tell A|B|C")
        shown = [(each["content"]["text"], each["status"]) for each in frames]
        parts = [(text, "in_progress") for text in "ABC"]
        assert shown == [*parts, (None, "complete")]


# Steps


async def test_tkr_shows_steps_as_tasks(place: Place) -> None:
    async with open_chat("tkr-polling", place, "work-tkr") as chat:
        frames = await frames_of(chat, "work")
        steps = [each for each in frames if each["event"] == "task:update"]
        assert [(each["title"], each["status"]) for each in steps] == [
            ("look up", "in_progress"),
            ("read the list", "in_progress"),
            ("read the list", "completed"),
            ("look up", "completed"),
            ("reserve", "in_progress"),
            ("reserve", "failed"),
        ]
        assert frames[-1]["content"] == "Let me see. Three are left."


async def test_group_chat_shows_steps_as_status(place: Place) -> None:
    async with open_chat("group", place, "work-group") as chat:
        await frames_of(chat, "tell ready")  # its agent has started
        frames = await frames_of(chat, "work")
        steps = [each["payload"] for each in frames if each["message_type"] == "status"]
        assert [(each["step"]["name"], each["status"]) for each in steps] == [
            ("look up", "in_progress"),
            ("read the list", "in_progress"),
            ("read the list", "completed"),
            ("look up", "completed"),
            ("reserve", "in_progress"),
            ("reserve", "failed"),
        ]


async def test_stage_chat_shows_a_stage_for_each_tool(place: Place) -> None:
    async with open_chat("stage", place, "work-stage") as chat:
        await chat.say("work")
        await chat.until("answer", "Let me see. Three are left.")
        stages = [each for each in chat.frames if "stage" in each]
        told = [each.get("content", each.get("response", each.get("error"))) for each in stages]
        assert list(zip([each["stage"] for each in stages], told, strict=True)) == [
            ("initial_response", "Let me see. "),
            ("tool_result", "3 left"),
            ("tool_exec", "the till is offline"),
            ("final_response", "Let me see. Three are left."),
        ]
        assert [each["tool"] for each in stages if "tool" in each] == ["stock", "till"]


async def test_agentiq_shows_steps_within_steps(place: Place) -> None:
    async with open_chat("agentiq", place, "work-agentiq") as chat:
        frames = await frames_of(chat, "work")
        steps = [each for each in frames if each["type"] == "system_intermediate_message"]
        names = {each["id"]: each["content"]["name"] for each in steps} | {"root": "root"}
        assert [
            (names[each["parent_id"]], names[each["id"]], each["status"]) for each in steps
        ] == [
            ("root", "look up", "in_progress"),
            ("look up", "read the list", "in_progress"),
            ("look up", "read the list", "complete"),
            ("root", "look up", "complete"),
            ("root", "reserve", "in_progress"),
            ("root", "reserve", "complete"),
        ]
        assert steps[-1]["content"]["payload"] == "**Error:** the till is offline"
        texts = [each["content"]["text"] for each in frames if each not in steps]
        assert texts == ["Let me see. ", "Three are left.", None]


# Questions


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_question_of_each_kind_is_put_and_answered(place: Place, client: str) -> None:
    async with open_chat(client, place, f"ask-{client}") as chat:
        for kind, (values, result) in ANSWERS.items():
            await chat.say(f"ask {kind}")
            prompt = await chat.until("prompt")
            about, options = QUESTIONS[chat.dialect](prompt.frame)
            assert (about, [str(each["value"]) for each in options]) == (
                kind,
                {"text": [], "binary_choice": ["yes", "no"]}.get(kind, ["rye", "wheat", "spelt"]),
            )
            await chat.answer(prompt, *values)
            await chat.until("answer", result)
        await chat.say("ask notification")
        assert (await chat.until("notice")).text == "The oven is hot"
        await chat.until("answer", "noticed")


# Where a format has the type of a question, and its options.
QUESTIONS: dict[str, Any] = {
    "tkr": lambda frame: (frame["metadata"]["input_type"], frame["metadata"]["options"]),
    "group": lambda frame: (frame["payload"]["input_type"], frame["payload"]["options"]),
    "stage": lambda frame: (frame["input_type"], frame.get("options", [])),
    "agentiq": lambda frame: (
        frame["content"]["input_type"],
        frame["content"].get("options", []),
    ),
}


# Failures


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_failure_is_shown_once_and_the_conversation_goes_on(
    place: Place, client: str
) -> None:
    async with open_chat(client, place, f"fail-{client}") as chat:
        for words, problem, code in (
            ("fail", "the oven is cold", "oven_cold"),
            ("crash", "the agent failed (ValueError)", "worker_failed"),
        ):
            said = await chat.say(words)
            failure = await chat.until("failure", about=said)
            assert problem in failure.text
            assert FAILURES[chat.dialect](failure) == (
                "workflow_error" if client == "agentiq" else code
            )
            await chat.say(f"and after {words}")
            await chat.until("answer", f"and after {words}")
        assert len(chat.all("failure")) == 2
        assert "a secret of the agent" not in str(chat.frames)


FAILURES: dict[str, Any] = {
    "tkr": lambda failure: failure.frame["error_code"],
    "group": lambda failure: failure.frame["error"]["code"],
    "stage": lambda failure: failure.frame["code"],
    "agentiq": lambda failure: failure.frame["content"]["code"],
}


# Cancelling


async def ended(chat: Chat, name: str) -> None:
    """Make sure that the agent has stopped, and answers again."""
    await chat.place.written(f"{name}.cancelled")
    await chat.say("still here?")
    await chat.until("answer", "still here?")


async def hangs(chat: Chat, name: str) -> tuple[str, Heard]:
    words = await chat.say(f"hang {name}")
    return words, await chat.until("step", about="" if chat.dialect == "agentiq" else words)


async def test_tkr_cancels_an_answer_by_the_task_of_a_step(place: Place) -> None:
    async with open_chat("tkr", place, "hang-tkr") as chat:
        assert isinstance(chat, TkrChat)
        words, step = await hangs(chat, "tkr")
        await chat.stop(step)
        closed = await chat.until("answer", about=words)
        assert (closed.text, closed.frame["turn_complete"]) == ("one, two, ", True)
        await ended(chat, "tkr")


async def test_group_chat_cancels_an_answer_by_a_status(place: Place) -> None:
    async with open_chat("group", place, "hang-group") as chat:
        assert isinstance(chat, GroupChat)
        words, _ = await hangs(chat, "group")
        await chat.stop(words)
        await chat.until("stopped", about=words)
        await ended(chat, "group")
        assert not [each for each in chat.all("answer", "failure") if each.about == words]


async def test_agentiq_cancels_an_answer_by_the_next_message(place: Place) -> None:
    async with open_chat("agentiq", place, "hang-agentiq") as chat:
        assert isinstance(chat, AgentIqChat)
        words, _ = await hangs(chat, "agentiq")
        second = await chat.say("tell enough")
        assert (await chat.until("answer", about=second)).text == "enough"
        await ended(chat, "agentiq")
        assert not [each for each in chat.all("answer", "failure") if each.about == words]


async def test_stage_chat_shows_that_another_client_has_stopped_its_answer(place: Place) -> None:
    name = "hang-stage"
    stage, group = StageChat(place, name), GroupChat(place, name)
    async with open_chats(stage, group):
        await stage.say("hang stage")
        step = await group.until("step")
        await group.stop(step.about)
        stopped = await stage.until("stopped")
        assert (stopped.about, stopped.frame["status"]) == (step.about, "warning")
        [begun] = stage.all("answer")
        assert begun.text == "one, two, "
        await ended(stage, "stage")
