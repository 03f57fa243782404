"""Gateway, bus or agents are killed in the middle of turns, with clients of all formats there."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import anyio
import pytest

from tests.gateway.e2e.chat import Chat, Heard
from tests.gateway.e2e.clients import CLIENTS, open_chats
from tests.gateway.e2e.place import Place, open_place
from tests.gateway.e2e.web_chat import AgentIqChat

pytestmark = pytest.mark.anyio


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as opened:
        yield opened


async def begin(*chats: Chat) -> None:
    """Begin a turn in each conversation, and wait until all agents have shown a part of it."""
    for chat in chats:
        await chat.say(f"stages {chat.name}")
    for chat in chats:
        await chat.place.reached(f"{chat.name}.midway")


async def answer(*chats: Chat) -> None:
    """Answer the agents' questions, and wait until they have taken that in."""
    async with anyio.create_task_group() as tasks:
        for chat in chats:
            tasks.start_soon(keep_answering, chat)
        for chat in chats:
            await chat.place.reached(f"{chat.name}.ending")
        tasks.cancel_scope.cancel()


async def keep_answering(chat: Chat, answered: int = 0) -> None:
    """Answer each question: an agent that begins its turn anew asks again."""
    while True:
        await chat.when(lambda: len(chat.all("prompt")) > answered)  # noqa: B023 (in this round)
        answered = len(chat.all("prompt"))
        await chat.answer(chat.all("prompt")[-1], "wheat")


def let_go(stage: str, *chats: Chat) -> None:
    for chat in chats:
        chat.place.let_go(f"{chat.name}.{stage}")


async def finish(*chats: Chat, answered: dict[Chat, int]) -> None:
    """Make sure that each turn ends with its answer, once, and that the conversation goes on."""
    async with anyio.create_task_group() as tasks:
        for chat in chats:
            tasks.start_soon(keep_answering, chat, answered[chat])
        for chat in chats:
            await chat.when(lambda: bool(ends_of(chat)))  # noqa: B023 (in this round)
        tasks.cancel_scope.cancel()
    for chat in chats:
        await chat.say("still here?")
        await chat.until("answer", "still here?")
        # Group chat shows the last messages again to whoever connects.
        ends = ends_of(chat)
        assert len({each.id for each in ends} if chat.dialect == "group" else ends) == 1, ends
        assert not [each for each in chat.all("failure", "stopped") if each.about == ends[0].about]
        others = [name for name in CLIENTS if name not in chat.name]
        assert not [name for name in others if f" {name}.test" in str(chat.frames)]


def ends_of(chat: Chat) -> list[Heard]:
    """Return the answers of the turn that `begin` has begun."""
    return [each for each in chat.all("answer") if each.text.endswith(f"{chat.name}: wheat")]


async def kill(
    victim: str, place: Place, *chats: Chat, then: Callable[[], None] | None = None
) -> None:
    """Kill the gateway or the bus, do something, and wait until all clients are back."""
    connections = [chat.connections for chat in chats]
    if victim == "gateway":
        await place.kill_gateway()
    else:
        await place.kill_bus()
    if then is not None:
        then()
    for chat, count in zip(chats, connections, strict=True):
        await chat.until_back(count + 1)


@pytest.mark.parametrize("victim", ["gateway", "bus"])
async def test_turns_outlive_a_kill(place: Place, victim: str) -> None:
    """It is killed in the middle of an answer, while a question is open, and before the end."""
    chats = [client(place, f"{name}.test") for name, client in CLIENTS.items()]
    idle = AgentIqChat(place, "idle")
    async with open_chats(*chats, idle):
        await idle.say("before")
        await idle.until("answer", "before")
        await begin(*chats)
        await kill(victim, place, *chats, idle)
        let_go("midway", *chats)
        for chat in chats:
            await chat.until("prompt")
        await kill(victim, place, *chats, idle)
        await answer(*chats)  # the questions are put again
        answered = {chat: len(chat.all("prompt")) for chat in chats}
        await kill(victim, place, *chats, idle, then=lambda: let_go("ending", *chats))
        await finish(*chats, answered=answered)
        assert [each.text for each in idle.heard] == ["before", "before"]  # a part, and its end
        await idle.say("after")
        await idle.until("answer", "after")


async def test_turns_outlive_their_agents(place: Place) -> None:
    """An agent that is killed is started again, and gets its words again; others work on."""
    chats = [client(place, f"{name}.test") for name, client in CLIENTS.items()]
    spared = AgentIqChat(place, "spared.test")
    async with open_chats(*chats, spared):
        await begin(*chats, spared)
        pid = await place.reached("spared.test.midway")
        await kill_agents("midway", *chats)
        let_go("midway", *chats, spared)
        await answer(*chats, spared)
        let_go("ending", *chats, spared)
        await finish(*chats, spared, answered=dict.fromkeys((*chats, spared), 1))
        assert {chat.connections for chat in (*chats, spared)} == {1}
        assert await place.reached("spared.test.ending") == pid
        [end] = ends_of(spared)
        assert end.text == "Once upon a time.\n\nspared.test: wheat"


async def kill_agents(stage: str, *chats: Chat) -> None:
    """Kill the agents of conversations at a stage, and wait until new ones have reached it."""
    for chat in chats:
        pid = await chat.place.reached(f"{chat.name}.{stage}")
        (chat.place.folder / f"{chat.name}.{stage}").unlink()
        os.kill(pid, signal.SIGKILL)
    for chat in chats:
        await chat.place.reached(f"{chat.name}.{stage}")
