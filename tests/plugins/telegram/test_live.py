"""Live turns: "typing…", the streamed answer, and prompts with buttons."""

from __future__ import annotations

from typing import Any

import pytest

from busd import Refuse
from tests.plugins.telegram.chats import Message, failing
from tests.plugins.telegram.rig import Agent, Rig, poll_until

pytestmark = pytest.mark.anyio
GROUP = -100


async def ask(rig: Rig, agent: Agent, chat: int = 7, **more: Any) -> str:
    """Let a user ask something; return the turn."""
    before = len(agent.messages())
    rig.server.says("?", chat, **more)
    return str((await agent.heard(before + 1))[-1]["turn"])


async def prompted(
    rig: Rig, agent: Agent, *options: str, kind: str = "radio", chat: int = 7
) -> Message:
    """Let the agent ask its user; return the message with the buttons."""
    turn = await ask(rig, agent, chat)
    await agent.tell(
        "turn.prompt", chat, id="p1", turn=turn, text="Which?", input_type=kind, options=options
    )
    await poll_until(lambda: rig.server.texts(chat))
    [message] = [each for each in rig.server.messages if each.chat == chat]
    plain = await agent.reply("Which?\n1. …", chat, turn, prompt_id="p1")
    assert plain.acks[0].success
    return message


async def test_typing_is_shown_while_the_agent_works(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        turn = await ask(rig, agent)
        await poll_until(lambda: rig.server.calls("sendChatAction"))
        [first, *_] = rig.server.calls("sendChatAction")
        assert (first["chat_id"], first["action"]) == ("7", "typing")
        await agent.reply("done", to=turn)
        await rig.shown("done")


async def test_a_streamed_answer_is_edited_in_place_and_becomes_the_reply(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        turn = await ask(rig, agent)
        await agent.tell("turn.delta", turn=turn, text="**to")
        await poll_until(lambda: rig.server.texts() == ["**to …"])
        await agent.tell("turn.delta", turn=turn, text=" be**")
        await poll_until(lambda: rig.server.texts() == ["to be …"])
        await agent.reply("**to be** or not", to=turn)
        [message] = await rig.shown("to be or not")
    assert message.formats() == [("bold", "to be")]
    assert message.edits == 2


async def test_a_reply_that_the_draft_shows_already_is_no_fault(rig: Rig) -> None:
    words = "Bad Request: message is not modified: they are exactly the same"
    async with rig.both() as (_, agent):
        turn = await ask(rig, agent)
        await agent.tell("turn.delta", turn=turn, text="yes")
        await poll_until(lambda: rig.server.texts() == ["yes …"])
        rig.server.trouble("editMessageText", failing(400, words))
        assert (await agent.reply("yes", to=turn)).acks[0].success
        assert len(rig.server.messages) == 1


async def test_a_draft_that_its_user_has_deleted_is_posted_anew(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        turn = await ask(rig, agent)
        await agent.tell("turn.delta", turn=turn, text="yes")
        await poll_until(lambda: rig.server.texts() == ["yes …"])
        rig.server.messages.clear()
        await agent.reply("yes", to=turn)
        await rig.shown("yes")


async def test_the_next_process_edits_the_draft_of_the_one_before(rig: Rig) -> None:
    async with rig.agent() as agent:
        async with rig.bridge():
            turn = await ask(rig, agent)
            await agent.tell("turn.delta", turn=turn, text="to")
            await poll_until(lambda: rig.server.texts() == ["to …"])
        async with rig.bridge():
            await agent.tell("turn.delta", turn=turn, text=" be")  # its beginning is missing
            await agent.reply("to be", to=turn)
            await rig.shown("to be")


async def test_a_prompt_is_answered_with_a_button(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        message = await prompted(rig, agent, "yes", "no", kind="binary_choice")
        assert list(message.buttons()) == ["yes", "no"]
        rig.server.presses(message.buttons()["no"], message)
        said = (await agent.heard(2))[1]
        assert (said["text"], said["prompt_id"], said["senderId"]) == ("no", "p1", "7")
        await poll_until(lambda: message.text == "Which?\n\n✓ no")
        assert message.buttons() == {}
        assert [each.get("text") for each in rig.server.answers] == [None]


async def test_several_options_can_be_chosen(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        message = await prompted(rig, agent, "tea", "milk", "ice", kind="checkbox")
        for label in ("☐ tea", "☐ ice", "☐ milk"):
            rig.server.presses(message.buttons()[label], message)
            await poll_until(lambda label=label: label not in message.buttons())  # type: ignore[misc]  # mypy cannot infer the lambda
        rig.server.presses(message.buttons()["☑ tea"], message)
        await poll_until(lambda: "☐ tea" in message.buttons())
        rig.server.presses(message.buttons()["Done"], message)
        assert (await agent.heard(2))[1]["text"] == "milk\nice"
        await poll_until(lambda: message.text == "Which?\n\n✓ milk, ice")


async def test_only_the_user_who_was_asked_can_answer_in_a_group_also_after_a_restart(
    rig: Rig,
) -> None:
    rig.server.add_chat(GROUP, "supergroup")
    async with rig.agent() as agent:
        async with rig.bridge(groups="all"):
            message = await prompted(rig, agent, "yes", "no", chat=GROUP)
            rig.server.presses(message.buttons()["no"], message, user=8)
            await poll_until(lambda: rig.server.answers)
        async with rig.bridge(groups="all"):
            rig.server.presses(message.buttons()["no"], message, user=8)
            await poll_until(lambda: len(rig.server.answers) == 2)
            rig.server.presses(message.buttons()["yes"], message)
            assert (await agent.heard(2))[1]["text"] == "yes"
    told = [each.get("text") for each in rig.server.answers[:2]]
    assert told == ["Only the person who was asked can answer."] * 2


async def test_a_stale_button_is_told_to_be_so(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        message = await prompted(rig, agent, "yes", "no")
        data = message.buttons()["yes"]
        rig.server.presses(data, message)
        await agent.heard(2)
        await poll_until(lambda: message.buttons() == {})
        for stale in (data, "deadbeef:1", "odd"):
            rig.server.presses(stale, message)
        await poll_until(lambda: len(rig.server.answers) == 4)
        await agent.heard(2)
    told = [each.get("text") for each in rig.server.answers]
    assert told == [None, *["This question is no longer open."] * 3]


async def test_a_button_of_another_chat_has_no_effect(rig: Rig) -> None:
    rig.server.add_chat(8)
    async with rig.both() as (_, agent):
        message = await prompted(rig, agent, "yes", "no")
        elsewhere = Message(8, 99, "?")
        rig.server.presses(message.buttons()["yes"], elsewhere, user=7)
        await poll_until(lambda: rig.server.answers)
        await agent.heard(1)


async def test_an_answer_that_the_agent_refuses_is_reported_at_the_button(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        message = await prompted(rig, agent, "yes", "no")
        agent.refusals = [Refuse("no such prompt")]
        rig.server.presses(message.buttons()["yes"], message)
        await poll_until(lambda: message.buttons() == {})
        [answer] = rig.server.answers
        assert answer["text"] == "This question is no longer open."


async def test_the_buttons_are_removed_when_the_question_was_answered_by_text(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        message = await prompted(rig, agent, "yes", "no")
        rig.server.says("yes")
        await agent.heard(2)
        await poll_until(lambda: message.buttons() == {})
        assert message.text == "Which?"


async def test_a_prompt_without_options_is_posted_as_text(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        turn = await ask(rig, agent)
        await agent.tell("turn.prompt", id="p1", turn=turn, text="Your name?", input_type="text")
        await agent.reply("Your name?", to=turn, prompt_id="p1")
        await rig.shown("Your name?")


async def test_a_reply_of_a_file_only_leaves_the_streamed_text_alone(rig: Rig) -> None:
    async with rig.both() as (_, agent):
        turn = await ask(rig, agent)
        await agent.tell("turn.delta", turn=turn, text="here it is")
        await poll_until(lambda: rig.server.texts() == ["here it is …"])
        file = {"kind": "file", "data": "aGk=", "name": "hi.txt"}
        assert (await agent.reply("", to=turn, attachments=[file])).acks[0].success
    assert [each.kind for each in rig.server.messages] == ["text", "document"]
