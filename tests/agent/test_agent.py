"""An agent: what it takes, what it answers, and who hears of it."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from busd import BusUnreachable, Client
from busd.agent.agent import Agent
from busd.agent.turn import Turn, TurnFailed
from busd.vocabulary.bub import TgReply
from tests.agent.conftest import MakeAgent, User, serving
from tests.daemons import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def echo(turn: Turn) -> str:
    return f"you said {turn.text}"


async def test_an_answer_goes_to_talkto_and_names_the_message(
    user: User, make_agent: MakeAgent, suffix: str
) -> None:
    async with user, serving(make_agent(echo)):
        ack = await user.write("hi", "m1")
        assert ack["type"] == "general_response"
        assert ack["content"] == {"status": "ok", "message": "queued", "request_id": "m1"}
        reply = await user.reply()
        del reply["timestamp"]
        assert reply == {
            "type": "tg_reply",
            "messageId": "m1.reply",
            "from": user.agent,
            "reply_to_message_id": "m1",
            "chat_id": f"1{suffix}",
            "content": {"text": "you said hi", "channel": "telegram"},
        }


async def test_a_message_is_acked_before_its_turn_ends(user: User, make_agent: MakeAgent) -> None:
    go_on = anyio.Event()

    async def slow(turn: Turn) -> str:
        await go_on.wait()
        return "done"

    async with user, serving(make_agent(slow)):
        assert (await user.write("hi"))["content"]["status"] == "ok"
        go_on.set()
        assert await user.text() == "done"


async def test_words_of_others_are_marked_and_answered_to_talkto(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    async with user, stranger, serving(make_agent(echo)):
        await stranger.write("psst", chat_id="theirs")
        reply = await user.reply()
        assert reply["content"]["text"] == f"you said [from:{stranger.name}] psst"
        assert reply["chat_id"] == user.name.partition(":")[2]
        await user.write("hi", chat_id="ours")
        reply = await user.reply()
        assert (reply["content"]["text"], reply["chat_id"]) == ("you said hi", "ours")


async def test_a_bridge_speaks_for_the_chat_that_its_payload_names(
    user: User, make_agent: MakeAgent, address: str, suffix: str
) -> None:
    bridge = User(f"bridge{suffix}", user.agent, address)
    async with user, bridge, serving(make_agent(echo)):
        words = {"type": "tg_message", "from": user.name, "content": {"text": "hi"}}
        await bridge.send(words)
        assert await user.text() == "you said hi"


async def test_a_bridge_speaks_for_the_chat_that_its_content_names(
    user: User, make_agent: MakeAgent, address: str, suffix: str
) -> None:
    bridge = User(f"bridge{suffix}", user.agent, address)
    chat: dict[str, Any] = {"chat_id": user.name.partition(":")[2], "channel": "telegram"}
    cancelled = anyio.Event()

    async def wait_or_echo(turn: Turn) -> str:
        if turn.text == "wait":
            with anyio.CancelScope() as scope:
                await turn.delta(turn.sender)
                try:
                    await anyio.sleep_forever()
                finally:
                    cancelled.set()
            assert not scope.cancelled_caught
        return f"you said {turn.text}"

    async with user, bridge, serving(make_agent(wait_or_echo)):
        await bridge.send({"type": "tg_message", "content": {"text": "hi", **chat}})
        reply = await user.reply()
        assert (reply["content"]["text"], reply["chat_id"]) == ("you said hi", chat["chat_id"])
        await bridge.send({"type": "tg_message", "content": {"text": "wait", **chat}}, "m")
        assert await user.event("turn.delta") == {"turn": "m", "text": user.name}
        ack = await bridge.tell("turn.cancel", {"turn": "m", **chat})
        assert ack["content"]["message"] == "cancelled"
        await cancelled.wait()


async def test_only_a_bridge_speaks_for_a_chat_that_its_content_names(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    async with user, stranger, serving(make_agent(echo)):
        await stranger.write("hi", chat_id=user.name.partition(":")[2])
        assert await user.text() == f"you said [from:{stranger.name}] hi"


async def test_another_chat_cannot_pass_for_talkto(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    async with user, stranger, serving(make_agent(echo)):
        words = {"type": "tg_message", "from": user.name, "content": {"text": "hi"}}
        await stranger.send(words)
        assert await user.text() == f"you said [from:{stranger.name}] hi"


async def test_an_answer_names_the_message_by_the_id_its_bridge_gave_it(
    user: User, make_agent: MakeAgent
) -> None:
    async def telling(turn: Turn) -> str:
        await turn.delta("…")
        return turn.text

    async with user, serving(make_agent(telling)):
        words = {"type": "tg_message", "messageId": "tg-77", "content": {"text": "hi"}}
        await user.send(words, "m1")
        assert (await user.event("turn.delta"))["turn"] == "tg-77"
        assert (await user.reply())["reply_to_message_id"] == "tg-77"


async def test_without_talkto_whoever_wrote_gets_the_answer(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    async with user, stranger, serving(make_agent(echo, talkto="")):
        await user.write("a")
        await stranger.write("b")
        assert (await user.text(), await stranger.text()) == ("you said a", "you said b")


async def test_what_happens_during_a_turn_is_told(user: User, make_agent: MakeAgent) -> None:
    async def busy(turn: Turn) -> None:
        await turn.delta("thinking… ")
        async with turn.step("search", tool="web", arguments={"q": "busd"}) as step:
            step.payload = "3 hits"
            with pytest.raises(ValueError):
                async with turn.step("look", parent=step):
                    raise ValueError
        await turn.reply("first")
        await turn.reply("second")

    async with user, serving(make_agent(busy)):
        await user.write("hi", "m")
        assert await user.event("turn.delta") == {"turn": "m", "text": "thinking… "}
        search = {"turn": "m", "id": "m.step.1", "name": "search", "tool": "web"}
        search["arguments"] = {"q": "busd"}  # type: ignore[assignment]
        look = {"turn": "m", "id": "m.step.2", "name": "look", "parent": "m.step.1", "payload": ""}
        begun, done = {"payload": "", "status": "in_progress"}, {"payload": "3 hits"}
        assert await user.event("turn.step") == search | begun
        assert await user.event("turn.step") == look | {"status": "in_progress"}
        assert await user.event("turn.step") == look | {"status": "failed"}
        assert await user.event("turn.step") == search | done | {"status": "complete"}
        assert [await user.text(), await user.text()] == ["first", "second"]


async def test_a_chats_own_address_gets_nothing_but_replies_and_they_say_all(
    make_agent: MakeAgent, address: str, user: User
) -> None:
    """A bridge that knows only replies shows questions and failures, too."""
    answers: list[str] = []

    async def lively(turn: Turn) -> str:
        await turn.delta("thinking… ")
        async with turn.step("look"):
            answers.append(await turn.ask("Really?", options=["yes", "no"]))
        raise TurnFailed("out of ink")

    async with Client(user.name, address=address) as chat, serving(make_agent(lively)):
        messages = chat.messages()

        async def text() -> str:
            with anyio.fail_after(PATIENCE_SECONDS):
                message = await anext(messages)
            await message.reply()
            assert (message.type, message.to) == ("tg_reply", user.name)
            return str(message.payload["content"]["text"])

        await chat.send(user.agent, {"type": "tg_message", "content": {"text": "hi"}})
        assert await text() == "Really?\n  1. yes\n  2. no"
        await chat.send(user.agent, {"type": "tg_message", "content": {"text": "2"}})
        assert await text() == "Sorry, that failed: out of ink"
    assert answers == ["no"]


async def test_a_plain_function_may_answer_too(user: User, make_agent: MakeAgent) -> None:
    def plain(turn: Turn) -> str:
        return turn.text.upper()

    async with user, serving(make_agent(plain)):
        await user.write("hi")
        assert await user.text() == "HI"


async def test_a_handler_that_raises_is_told_without_details(
    user: User, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(turn: Turn) -> str:
        raise ValueError("secret")

    async with user, serving(make_agent(broken)):
        await user.write("hi", "m")
        message = "the agent failed (ValueError)"
        error = {"turn": "m", "code": "worker_failed", "message": message}
        assert await user.event("turn.error") == error
        assert await user.text() == f"Sorry, that failed: {message}"
        assert "secret" in caplog.text


async def test_a_handler_may_say_itself_what_went_wrong(user: User, make_agent: MakeAgent) -> None:
    async def honest(turn: Turn) -> str:
        raise TurnFailed("out of ink", code="no_ink")

    async with user, serving(make_agent(honest)):
        await user.write("hi", "m")
        error = {"turn": "m", "code": "no_ink", "message": "out of ink"}
        assert await user.event("turn.error") == error
        assert await user.text() == "Sorry, that failed: out of ink"


async def test_a_turn_that_takes_too_long_fails_and_the_next_one_is_answered(
    user: User, make_agent: MakeAgent
) -> None:
    async def stuck(turn: Turn) -> str:
        if turn.text == "wait":
            await anyio.sleep_forever()
        return "quick"

    async with user, serving(make_agent(stuck, turn_seconds=0.05)):
        await user.write("wait")
        await user.write("go")
        assert (await user.event("turn.error"))["code"] == "timeout"
        assert await user.text() == "Sorry, that failed: no answer within 0.05 seconds"
        assert await user.text() == "quick"


async def test_an_answer_that_no_frame_can_hold_is_an_honest_failure(
    user: User, make_agent: MakeAgent
) -> None:
    async def chatty(turn: Turn) -> str:
        return "x" * 2_000_000

    async with user, serving(make_agent(chatty)):
        await user.write("hi")
        assert (await user.event("turn.error"))["code"] == "reply_failed"
        assert await user.text() == "Sorry, that failed: the answer could not be sent"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"type": "tg_message", "content": {}}, "tg_message: content: Object missing required"),
        ({"type": "tg_message", "content": {"text": 7}}, "tg_message: content.text: Expected"),
        ({"type": "tg_message", "content": []}, "tg_message: content: Expected `object`"),
        ({"type": "tea", "content": {}}, "no handler for type 'tea'"),
        (
            {"type": "agent_event", "content": {"event": "turn.cancel", "data": []}},
            "agent_event turn.cancel: ",
        ),
        ({"type": "configure", "content": {"talkto": "a b"}}, "configure: content.talkto: malf"),
        ({"type": "configure", "content": {"settings": {"x": "y" * 70_000}}}, "configure: settin"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_its_reason(
    user: User, make_agent: MakeAgent, payload: Any, reason: str
) -> None:
    async with user, serving(make_agent(echo)):
        said = await user.send(payload)
        assert isinstance(said, str)
        assert said.startswith(reason)
        await user.write("still there?")
        assert await user.text() == "you said still there?"


async def test_a_message_that_comes_twice_is_answered_once(
    user: User, make_agent: MakeAgent
) -> None:
    async with user, serving(make_agent(echo)):
        await user.write("one", "m1")
        assert (await user.write("one", "m1"))["content"]["message"] == "taken already"
        await user.write("two", "m2")
        assert [await user.text(), await user.text()] == ["you said one", "you said two"]
        assert (await user.write("one", "m1"))["content"]["message"] == "taken already"
        await user.write("three")
        assert await user.text() == "you said three"


async def test_a_reply_begins_no_turn_and_is_given_to_who_listens(
    user: User, make_agent: MakeAgent
) -> None:
    heard: list[tuple[str, str]] = []
    agent = make_agent(echo)

    @agent.hears
    async def hear(reply: TgReply, sender: str) -> None:
        heard.append((reply.text, sender))

    async with user, serving(agent):
        reply = {"type": "tg_reply", "content": {"text": "psst"}, "chat_id": "1"}
        assert (await user.send(reply))["content"]["status"] == "ok"
        await user.write("hi")
        assert await user.text() == "you said hi"
    assert heard == [("psst", user.name)]


async def test_two_agents_that_talk_to_each_other_come_to_an_end(
    user: User, stranger: User, make_agent: MakeAgent, address: str, suffix: str
) -> None:
    heard = anyio.Event()
    one = make_agent(echo, talkto=f"agent:other{suffix}")
    other = Agent(f"agent:other{suffix}", talkto=user.agent, address=address, arguments=[])
    other.answers(echo)
    other.hears(lambda reply, sender: heard.set())
    async with user, serving(one), serving(other):
        await user.write("hi")
        with anyio.fail_after(10):
            await heard.wait()
        await user.write("hi again", "m")
        assert [turn.message_id for turn in one.turns.all()][-1:] in ([], ["m"])
        assert not other.turns.all()


@pytest.mark.parametrize("kind", ["route_assigned", "spawn_result", "general_response"])
async def test_news_of_the_system_are_acked(user: User, make_agent: MakeAgent, kind: str) -> None:
    async with user, serving(make_agent(echo)):
        assert (await user.send({"type": kind, "content": {}}))["content"]["status"] == "ok"


async def test_a_reply_waits_for_an_addressee_that_is_just_coming_back(
    user: User, stranger: User, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    async with stranger, serving(make_agent(echo)):
        await stranger.write("hi")
        async with user:
            assert await user.text() == f"you said [from:{stranger.name}] hi"
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


async def test_a_reply_for_a_chat_that_is_away_waits_in_its_mailbox(
    user: User, stranger: User, make_agent: MakeAgent
) -> None:
    go_on = anyio.Event()
    agent = make_agent()

    @agent.answers
    async def answer(turn: Turn) -> str:
        await go_on.wait()
        return "done"

    async with stranger:
        async with serving(agent):
            async with user:
                await user.write("hi", "m")
            go_on.set()  # the answer comes when its chat is gone
            await until_kept(stranger, user.name)
        user = User(user.name, user.agent, str(user.bus.address))
        async with user:
            assert (await user.reply())["messageId"] == "m.reply"


async def until_kept(asker: User, address: str) -> None:
    """Wait until there is mail for an address."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not (await asker.bus.call("bus.listMailboxes", {"prefix": address}))["mailboxes"]:
            await anyio.lowlevel.checkpoint()


async def test_an_agent_without_a_bus_says_so(make_agent: MakeAgent, tmp_path: Any) -> None:
    agent = Agent("agent:x", address=f"unix:{tmp_path}/none", arguments=[])
    agent.answers(echo)
    with pytest.raises(BusUnreachable):
        await agent.serve()


async def test_an_agent_without_a_handler_is_a_mistake() -> None:
    with pytest.raises(RuntimeError, match=r"@agent\.answers"):
        await Agent("agent:x", arguments=[]).serve()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--client-id", "a b"], "malformed address"),
        (["--client-id"], "--client-id needs a value"),
        (["--talkto"], "--talkto needs a value"),
        (["--client-id", "--talkto=tg:1"], "--client-id needs a value"),
    ],
)
def test_a_mistake_on_the_command_line_ends_the_program_with_one_line(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    program = tmp_path / "agent.py"
    program.write_text("from busd import Agent\nAgent().run()\n")
    ended = subprocess.run(
        [sys.executable, program, *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("agent.py: ")
    assert reason in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
