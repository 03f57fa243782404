"""`busd chat` on a terminal: half-typed lines, pastes, and what is shown while one waits."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest

from tests.chat.test_terminal import bob, me, open_chat
from tests.cli.partner import Partner
from tests.cli.pseudo_terminal import BACKSPACE, CTRL_C, CTRL_D, CTRL_Z, UP, PseudoTerminal
from tests.cli.terminal import BUSD, Terminal

__all__ = ["bob", "me"]  # fixtures

PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


# At the prompt


def test_ctrl_c_clears_a_half_typed_line_and_leaves_on_an_empty_one(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.press("delete it al")
        screen.see_prompt("delete it al")
        screen.press(CTRL_C)
        screen.see_prompt()
        screen.type("hello")
        message = bob.hear()
        assert message.payload["content"]["text"] == "hello"
        bob.reply(message, "hi")
        screen.see("hi", ">")
        screen.press(CTRL_C)
        assert screen.end() == 130
        assert "Traceback" not in screen.output
        assert screen.mode() == screen.found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_that_is_left_in_the_middle_of_a_line_is_as_it_was(
    terminal: Terminal, bob: Partner, me: str, number: signal.Signals
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.press("half a line")
        screen.see_prompt("half a line")
        assert not screen.is_echoing()
        screen.process.send_signal(number)  # not a key: somebody wants it to end
        assert screen.end() == 128 + number
        assert screen.output.rindex(PASTE_OFF) > screen.output.rindex(PASTE_ON)
        assert screen.mode() == screen.found


def test_a_paste_of_several_lines_is_one_message(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.paste("def f():\n\n    return 1\n")
        screen.press("\r")
        message = bob.hear()
        assert message.payload["content"]["text"] == "def f():\n\n    return 1"
        bob.reply(message, "nice")
        screen.see("nice", ">")
        screen.paste("/usr/bin\n/usr/sbin")  # no command
        screen.press("\r")
        assert bob.hear().payload["content"]["text"] == "/usr/bin\n/usr/sbin"


# During a turn


def test_a_paste_during_a_turn_is_one_message(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        first = bob.hear()
        screen.paste("one\rtwo\r\nthree")
        screen.see("> one", "two", "three")
        screen.press("\r")
        assert bob.hear().payload["content"]["text"] == "one\ntwo\nthree"
        bob.reply(first, "done")
        screen.see("done", ">")
        screen.press(CTRL_C)
        bob.hear()
        screen.see("stopped", ">")
        screen.press(CTRL_D)
        assert screen.end() == 0
        assert screen.output.rindex(PASTE_OFF) > screen.output.rindex(PASTE_ON)
        assert screen.mode() == screen.found


def test_ctrl_c_during_a_turn_clears_a_half_typed_line_before_it_stops_the_turn(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("count")
        message = bob.hear()
        screen.press("never mi")
        screen.see_prompt("never mi")
        screen.press(CTRL_C)
        screen.see_prompt()
        screen.type("go on")
        assert bob.hear().payload["content"]["text"] == "go on"
        screen.press(CTRL_C)
        cancel = bob.hear().payload["content"]
        assert cancel["event"] == "turn.cancel"
        assert cancel["data"] != {"turn": message.message_id}  # the latest turn
        screen.see("stopped", ">")


def test_a_line_is_mended_during_a_turn_and_taken_along_to_the_prompt(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        first = bob.hear()
        screen.press("worng" + BACKSPACE * 4)
        screen.see_prompt("w")
        bob.reply(first, "ONE")
        screen.see("ONE", "> w")
        screen.type("rite")
        assert bob.hear().payload["content"]["text"] == "write"


def test_words_that_come_during_a_turn_leave_the_half_typed_line(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        message = bob.hear()
        screen.press("half")
        screen.see_prompt("half")
        bob.tell(message, "turn.step", name="look")
        screen.see("· look", "> half")
        screen.type(" done")
        assert bob.hear().payload["content"]["text"] == "half done"


def test_a_chat_that_was_suspended_takes_the_terminal_over_again(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    words = " ".join([*BUSD, "chat", "--agent", bob.address, "--as", me])
    job_control = ["bash", "-c", f"set -m; {words}; echo suspended; fg"]
    with PseudoTerminal(terminal, command=job_control) as screen:
        screen.see_prompt()
        screen.type("first")
        bob.hear()
        screen.press("half" + CTRL_Z)
        screen.see("suspended")
        screen.see_prompt("half")
        assert not screen.is_echoing()
        screen.type(" done")
        assert bob.hear().payload["content"]["text"] == "half done"


def test_the_status_line_says_what_is_waited_for(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.see_status(f"terminal:{me} → {bob.address}")
        screen.type("think")
        message = bob.hear()
        screen.see_status("waiting 0 s; Ctrl-C stops it")
        screen.see_status("waiting 1 s; Ctrl-C stops it")
        bob.tell(message, "turn.delta", text="it ")
        screen.see("it", ">")
        screen.see_status("streaming; Ctrl-C stops it")
        bob.tell(message, "turn.prompt", id="p", text="sure?")
        screen.see_status("the agent waits for your answer")
        screen.type("yes")
        bob.hear()
        bob.reply(message, "it is")
        screen.see("is", ">")
        screen.see_status(f"terminal:{me} → {bob.address}")


def test_a_streamed_line_is_wrapped_and_printed_once(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("hello")
        message = bob.hear()
        bob.tell(message, "turn.delta", text="日" * 60)
        screen.see("日" * 50, "日" * 10, ">")
        bob.reply(message, "日" * 60 + "!")
        screen.see("!")
        screen.see_status(" → ")
        assert "".join(screen.lines()).count("日") == 60


def test_a_resized_terminal_is_drawn_anew(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("hello")
        message = bob.hear()
        bob.tell(message, "turn.delta", text="x" * 60)
        screen.press("half")
        screen.see("x" * 60, "> half")
        screen.resize(columns=40, rows=20)
        screen.see("x" * 40, "x" * 20, "> half")
        screen.resize(columns=80, rows=24)
        screen.see("x" * 60, "> half")
        bob.reply(message, "x" * 60 + "!")
        screen.see("x" * 60 + "!", "> half")
        screen.see_status(" → ")


def test_a_streamed_line_longer_than_the_screen_leaves_the_prompt_in_sight(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.resize(columns=20, rows=10)
        screen.type("hello")
        message = bob.hear()
        bob.tell(message, "turn.delta", text="x" * 400 + "y")
        screen.see("x" * 20, "y", ">")
        screen.see_status("streaming")
        bob.reply(message, "x" * 400 + "yz")
        screen.see("x" * 20, "yz", ">")


def test_a_long_history_is_shortened(
    terminal: Terminal, bob: Partner, me: str, tmp_path: Path
) -> None:
    history = tmp_path / "state/busd/chat_history"
    history.parent.mkdir(parents=True)
    history.write_text("".join(f"\n# long ago\n+entry {n}\n" for n in range(3_000)))
    with open_chat(terminal, bob, me) as screen:
        screen.press(UP)
        screen.see_prompt("entry 2999")
        screen.type("")
        bob.hear()
    assert history.read_text().count("+entry") == 1_000  # the latest is not repeated
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert [path.name for path in history.parent.iterdir()] == ["chat_history"]


def test_a_simple_terminal_will_do(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me, TERM="dumb") as screen:
        screen.type("hello")
        message = bob.hear()
        bob.tell(message, "turn.delta", text="one\ntw")
        screen.see("> hello", ">", "one", ">")
        bob.reply(message, "one\ntwo")
        screen.see("two", ">")
        screen.press(CTRL_D)
        assert screen.end() == 0
        assert "\x1b" not in screen.output
