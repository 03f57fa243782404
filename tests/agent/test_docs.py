"""The agent in the documentation works as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import busd
from tests.agent.test_worker import Chat, chat, end, terminal  # noqa: F401
from tests.cli.terminal import Terminal

PAGE = Path(busd.__file__).parent.parent / "docs" / "worker-kit.md"


def test_the_example_answers_asks_and_ends(
    terminal: Terminal,  # noqa: F811
    chat: Chat,  # noqa: F811
    tmp_path: Path,
) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    program = tmp_path / "agent.py"
    program.write_text(code)
    command = [sys.executable, "-W", "error", str(program), "--mine", f"--client-id={chat.worker}"]
    with terminal.start_any([*command, "--talkto", chat.bus.client_id]) as running:
        chat.write("hi")
        shown = [chat.next()["content"] for _ in range(3)]
        assert [each["event"] for each in shown] == ["turn.delta", "turn.step", "turn.step"]
        assert shown[2]["data"]["payload"] == 2
        assert chat.text() == "You said 'hi'."
        chat.write("a long message, and no end to it")
        for _ in range(3):
            chat.next()
        assert chat.next()["content"]["data"]["options"] == ["yes", "no"]
        assert chat.text() == "That is long. Go on?\n  1. yes\n  2. no"
        chat.write("no")
        assert chat.text() == "As you like."
        assert end(running) == (0, "")
