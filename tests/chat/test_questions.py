"""What `busd chat` does with questions of agents, however they come."""

from __future__ import annotations

import sys
from pathlib import Path

from busd.client.sync import SyncIncoming
from tests.bus.access.guarded import new_token, open_guarded
from tests.chat.test_chat import bob, chat, me
from tests.cli.partner import Partner
from tests.cli.terminal import Terminal

__all__ = ["bob", "me"]  # fixtures


def test_a_question_that_comes_in_both_ways_is_shown_once(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    def ask(bob: Partner, message: SyncIncoming) -> None:
        bob.tell(message, "turn.prompt", id="p", text="sure?", options=["yes", "no"])
        about = {"reply_to_message_id": message.message_id}
        plain = {"text": "sure?\n  1. yes\n  2. no", "prompt_id": "p"}
        bob.send(message.sender, "tg_reply", plain, **about)
        bob.reply(message, f"so {bob.hear().payload['content']['text']}")

    said = chat(terminal, bob, me, ask, lines="delete\nN\n")
    assert said == (0, "? sure?\n  1. yes\n  2. no\nso no\n", "")


def test_an_answer_that_is_no_option_is_left_to_the_agent(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    def ask(bob: Partner, message: SyncIncoming) -> None:
        for text in ("sure?", "sure now?"):
            bob.tell(message, "turn.prompt", id="p", text=text, options=["yes", "no"])
            answers.append(bob.hear().payload["content"]["text"])
        bob.reply(message, "fine")

    answers: list[str] = []
    assert chat(terminal, bob, me, ask, lines="delete\nyno\nY\n").code == 0
    assert answers == ["yno", "yes"]


def test_a_chat_that_may_not_hear_events_is_told_and_gets_questions_as_replies(
    tmp_path: Path,
) -> None:
    grant = {"name": "guest", "token": "guest", "subscribe": ["terminal:*"]}
    workers = {
        "workers.default.agent": [sys.executable, str(tmp_path / "agent.py")],
        "workers.default.spawner": "subprocess",
    }
    (tmp_path / "agent.py").write_text(
        "from busd import Agent\n"
        "agent = Agent()\n"
        "@agent.answers\n"
        "async def answer(turn):\n"
        "    return await turn.ask('Really?', options=['yes', 'no'])\n"
        "agent.run()\n"
    )
    with open_guarded("uvloop", [grant], workers) as daemon:
        (tmp_path / "token").write_text(new_token(daemon, "guest"))
        (tmp_path / "token").chmod(0o600)
        terminal = Terminal(tmp_path, f"tcp://127.0.0.1:{daemon.port}")
        said = terminal.busd(
            "chat", "--as", "ann", stdin="hi\n2\n", BUSD_TOKEN_FILE=str(tmp_path / "token")
        )
    assert (said.code, said.out) == (0, "Really?\n  1. yes\n  2. no\nno\n")
    assert said.err.startswith("the agent's progress is not shown: ")
