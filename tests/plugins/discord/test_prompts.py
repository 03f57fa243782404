"""Prompts with buttons and menus, and who may press them."""

from __future__ import annotations

import anyio
import pytest

from busd import Refuse
from tests.bridge.toy import ToyAgent, poll_until
from tests.plugins.discord.place import Place, Route
from tests.plugins.discord.world import BOT, Channel, Json, World

pytestmark = pytest.mark.anyio


async def ask(
    world: World, route: Route, agent: ToyAgent, chat: Channel, *options: str, **more: object
) -> Json:
    """Let a user say something and the agent ask; return the message with the buttons."""
    begun = world.say(chat, f"<@{BOT}> begin", user_id=1)
    await route.wait_for(1)
    prompt = {"id": "p1", "text": "Go on?", "turn": begun["id"], "options": options} | more
    await agent.tell("turn.prompt", str(chat.id), **prompt)
    await world.wait_until(lambda: world.own(chat))
    receipt = await agent.reply("Go on? (yes, no)", str(chat.id), to=begun["id"], prompt_id="p1")
    assert receipt.acks[0].success
    [message] = world.own(chat)
    return message


def labels(message: Json) -> list[str]:
    return [each["label"] for each in message["components"][0]["components"]]


async def pressed(world: World, press_id: str) -> Json:
    await world.wait_until(lambda: press_id in world.callbacks)
    return world.callbacks[press_id]


async def test_a_button_answers_the_prompt_once(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.add()
    async with place.serving():
        message = await ask(world, route, agent, chat, "yes", "no")
        assert labels(message) == ["yes", "no"]
        answer = await pressed(world, world.press(chat, message, "no"))
        await route.wait_for(2)
        again = await pressed(world, world.press(chat, message, "yes"))
    assert route.got[1]["content"]["prompt_id"] == "p1"
    assert route.got[1]["content"]["text"] == "no"
    assert answer["type"] == 7
    assert answer["data"]["content"] == "Go on?\n> no"
    assert answer["data"]["components"] == []
    assert again["data"]["content"] == "This question is no longer open."
    assert again["data"]["flags"] == 64  # only who pressed sees it
    assert len(route.got) == 2


async def test_only_the_user_who_was_asked_may_answer(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.add()
    async with place.serving():
        message = await ask(world, route, agent, chat, "yes", "no")
        answer = await pressed(world, world.press(chat, message, "yes", user_id=2))
    assert answer["data"]["content"] == "Only the user who was asked can answer this."
    assert len(route.got) == 1


async def test_a_button_works_after_a_restart_of_the_bridge(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving():
        message = await ask(world, route, agent, chat, "yes", "no")
    async with place.serving() as bridge:
        # What was said just before is read once more; that is no answer.
        await poll_until(lambda: bridge.status.pushed == 1)
        await pressed(world, world.press(chat, message, "yes"))
        assert await route.wait_for(2) == ["begin", "yes"]


async def test_several_options_of_a_menu_are_lines_of_the_answer(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving():
        options = [str(number) for number in range(7)]
        message = await ask(world, route, agent, chat, *options, input_type="checkbox")
        answer = await pressed(world, world.press(chat, message, values=["2", "5"]))
        assert await route.wait_for(2) == ["begin", "2\n5"]
    assert answer["data"]["content"] == "Go on?\n> 2, 5"


async def test_a_written_answer_closes_the_prompt(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving() as bridge:
        message = await ask(world, route, agent, chat, "yes", "no")
        world.say(chat, "yes, please")
        await poll_until(lambda: bridge.status.pushed == 2)
        answer = await pressed(world, world.press(chat, message, "no"))
    assert answer["data"]["content"] == "This question is no longer open."
    assert route.texts() == ["begin", "yes, please"]


async def test_a_prompt_without_options_is_plain_text(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving():
        begun = world.say(chat, "begin")
        await route.wait_for(1)
        data = {"id": "p1", "text": "Your name?", "turn": begun["id"]}
        await agent.tell("turn.prompt", str(chat.id), **data)
        await agent.reply("Your name?", str(chat.id), to=begun["id"], prompt_id="p1")
    [message] = world.own(chat)
    assert (message["content"], message["components"]) == ("Your name?", [])


async def test_an_answer_that_is_refused_is_told_to_who_pressed(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving():
        message = await ask(world, route, agent, chat, "yes", "no")
        route.refusals.append(Refuse("too late"))
        answer = await pressed(world, world.press(chat, message, "yes"))
    assert answer["data"]["content"] == "Your answer was not accepted: too late"


async def test_a_press_that_is_forged_does_nothing(
    place: Place, world: World, route: Route, agent: ToyAgent
) -> None:
    chat = world.direct()
    async with place.serving():
        message = await ask(world, route, agent, chat, "yes", "no")
        first = message["components"][0]["components"][0]
        for odd in ("7", "-1", "x", "", "99999999999"):
            digest = first["custom_id"].split(":")[1]
            forged = {"type": 2, "label": "", "custom_id": f"busd:{digest}:{odd}"}
            fake = message | {"components": [{"type": 1, "components": [forged]}]}
            with anyio.fail_after(10):
                answer = await pressed(world, world.press(chat, fake))
            assert answer["data"]["content"] == "This question is no longer open."
    assert len(route.got) == 1
