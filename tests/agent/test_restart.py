"""What an agent remembers: messages that it took, whom it talks to, its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw

from busd.agent.ledger import MAX_KNOWN, Asked, Ledger, TurnKey
from busd.agent.turn import Turn
from tests.agent.conftest import MakeAgent, User, serving


async def echo(turn: Turn) -> str:
    return f"you said {turn.text}"


async def stuck(turn: Turn) -> str:
    await turn.delta("begun")
    await anyio.sleep_forever()
    return ""


@pytest.mark.anyio
async def test_a_message_that_was_answered_is_not_answered_after_a_restart(
    user: User, make_agent: MakeAgent, workspace: Path
) -> None:
    async with user:
        async with serving(make_agent(echo, workspace=workspace)):
            await user.write("one", "m1")
            assert await user.text() == "you said one"
        async with serving(make_agent(echo, workspace=workspace)):
            assert (await user.write("one", "m1"))["content"]["message"] == "taken already"
            await user.write("two", "m2")
            assert await user.text() == "you said two"


@pytest.mark.anyio
async def test_messages_that_were_taken_are_answered_after_a_restart_in_order(
    user: User, make_agent: MakeAgent, workspace: Path
) -> None:
    async with user:
        for _ in range(3):  # to be stopped is no fault of a message
            async with serving(make_agent(stuck, workspace=workspace)):
                for number in (1, 2):
                    await user.write(str(number), f"m{number}")
                assert (await user.event("turn.delta"))["turn"] == "m1"
        async with serving(make_agent(echo, workspace=workspace)):
            assert [await user.text(), await user.text()] == ["you said 1", "you said 2"]


@pytest.mark.anyio
async def test_a_message_that_kills_its_agent_twice_is_let_go(
    user: User, make_agent: MakeAgent, workspace: Path
) -> None:
    payload = {"type": "tg_message", "content": {"text": "poison"}}
    ledger = Ledger(workspace / "data" / "turns.jsonl")
    ledger.take(Asked("m", user.name, Raw(json.dumps(payload).encode())))
    for _ in range(2):
        ledger.start(TurnKey(user.name, "m"))  # and never more was heard of it
    async with user, serving(make_agent(echo, workspace=workspace)):
        assert (await user.event("turn.error"))["code"] == "worker_died"
        assert await user.text() == "Sorry, that failed: the agent died over this message, twice"
        await user.write("hi")
        assert await user.text() == "you said hi"


@pytest.mark.anyio
async def test_what_was_configured_outlives_the_agent(
    user: User, stranger: User, make_agent: MakeAgent, workspace: Path
) -> None:
    (workspace / "config.json").write_text('{"channel": "telegram", "talkto": ""}')
    async with user, stranger:
        content: dict[str, Any] = {"talkto": stranger.name, "settings": {"mood": "good", "x": 1}}
        agent = make_agent(echo, workspace=workspace)
        async with serving(agent):
            ack = await user.send({"type": "configure", "content": content})
            assert ack["content"]["status"] == "ok"
            await stranger.send({"type": "configure", "content": {"settings": {"x": None}}})
            assert (agent.talkto, agent.settings) == (stranger.name, {"mood": "good"})
            await user.write("hi")
            assert await stranger.text() == f"you said [from:{user.name}] hi"
        agent = make_agent(echo, workspace=workspace)
        assert (agent.talkto, agent.settings) == (stranger.name, {"mood": "good"})
    kept = json.loads((workspace / "config.json").read_text())
    assert kept == {"channel": "telegram", "talkto": stranger.name, "settings": {"mood": "good"}}
    assert (workspace / "config.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["agent:fellow", "tg:2"])
async def test_an_agent_is_not_configured_by_strangers(
    user: User, make_agent: MakeAgent, address: str, suffix: str, name: str
) -> None:
    other = User(f"{name}{suffix}", user.agent, address)
    async with user, other, serving(make_agent(echo)) as agent:
        content = {"talkto": other.name}
        said = await other.send({"type": "configure", "from": user.name, "content": content})
        assert said == f"configure: only {user.name} and agent:system may do that"
        assert agent.talkto == user.name


@pytest.mark.anyio
@pytest.mark.parametrize("content", ["", "rubbish", "[]", '{"talkto": 7, "settings": 8}'])
async def test_a_config_that_says_nothing_is_left_out(
    user: User, make_agent: MakeAgent, workspace: Path, content: str
) -> None:
    (workspace / "config.json").write_text(content)
    agent = make_agent(echo, workspace=workspace)
    assert (agent.talkto, agent.settings) == (user.name, {})


@pytest.mark.anyio
async def test_a_workspace_that_cannot_be_written_stops_no_answer(
    user: User, make_agent: MakeAgent, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (workspace / "data").write_text("in the way")
    (workspace / "config.json").mkdir()
    async with user, serving(make_agent(echo, workspace=workspace)) as agent:
        await user.write("hi", "m")
        assert await user.text() == "you said hi"
        await user.send({"type": "configure", "content": {"settings": {"a": 1}}})
        assert agent.settings == {"a": 1}
        assert (await user.write("hi", "m"))["content"]["message"] == "taken already"
    assert "cannot be written" in caplog.text


def test_a_ledger_knows_the_last_thousand(workspace: Path) -> None:
    file = workspace / "turns.jsonl"
    ledger = Ledger(file)
    for number in range(MAX_KNOWN + 10):
        ledger.take(Asked(f"m{number}", "tg:1", Raw(b"{}")))
        ledger.finish([TurnKey("tg:1", f"m{number}")])
    for each in (ledger, Ledger(file)):
        assert [each.knows(TurnKey("tg:1", f"m{n}")) for n in (9, 10, MAX_KNOWN + 9)] == [
            False,
            True,
            True,
        ]


OPEN = TurnKey("tg:1", "open")


def test_a_ledger_does_not_grow_for_ever(workspace: Path) -> None:
    file = workspace / "turns.jsonl"
    ledger = Ledger(file)
    ledger.take(Asked("open", "tg:1", Raw(b'{"a":1}')))
    ledger.start(OPEN)
    for number in range(120):
        ledger.take(Asked(f"m{number}", "tg:1", Raw(b'"' + b"x" * 100_000 + b'"')))
        ledger.finish([TurnKey("tg:1", f"m{number}")])
    assert file.stat().st_size < 6_000_000
    again = Ledger(file)
    assert again.unanswered() == [Asked("open", "tg:1", Raw(b'{"a":1}'))]
    assert again.start(OPEN) == 2
    assert again.knows(TurnKey("tg:1", "m0"))


def test_a_ledger_survives_a_line_that_was_cut_off(workspace: Path) -> None:
    file = workspace / "turns.jsonl"
    Ledger(file).take(Asked("m", "tg:1", Raw(b"{}")))
    file.write_bytes(file.read_bytes() + b'{"id":"n","sta')
    assert [each.message_id for each in Ledger(file).unanswered()] == ["m"]
    Ledger(file).take(Asked("o", "tg:1", Raw(b"{}")))
    assert [each.message_id for each in Ledger(file).unanswered()] == ["m", "o"]
