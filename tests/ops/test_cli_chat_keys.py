"""`busd chat` on a terminal: half-typed lines, pastes, and what is shown while one waits."""

from __future__ import annotations

import signal

import pytest

from busd.chat.keys import Keys
from tests.ops.partner import Partner
from tests.ops.pseudo_terminal import BACKSPACE, CTRL_C, CTRL_D
from tests.ops.terminal import Terminal
from tests.ops.test_cli_chat_terminal import bob, me, open_chat

__all__ = ["bob", "me"]  # fixtures

XTERM = {"TERM": "xterm", "NO_COLOR": "1"}
PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


# At the prompt


def test_ctrl_c_clears_a_half_typed_line_and_leaves_on_an_empty_one(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.press("delete it al")
        screen.read_until("delete it al")
        screen.press(CTRL_C)
        screen.read_until("^C\r\n")
        screen.read_until("> ")
        screen.type("hello")
        message = bob.hear()
        assert message.payload["content"]["text"] == "hello"
        bob.reply(message, "hi")
        screen.read_until("hi\r\n> ")
        screen.press(CTRL_C)
        code, shown = screen.end()
        assert code == 130
        assert "Traceback" not in shown
        assert screen.mode() == screen.found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_that_is_left_in_the_middle_of_a_line_is_as_it_was(
    terminal: Terminal, bob: Partner, me: str, number: signal.Signals
) -> None:
    with open_chat(terminal, bob, me, **XTERM) as screen:
        screen.press("half a line")
        screen.read_until("half a line")
        assert not screen.is_echoing()
        screen.process.send_signal(number)  # not a key: somebody wants it to end
        code, shown = screen.end()
        assert code == 128 + number
        assert PASTE_OFF in shown  # pasting is not special any more
        assert screen.mode() == screen.found


def test_a_paste_of_several_lines_is_one_message(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me, **XTERM) as screen:
        screen.paste("def f():\n\n    return 1\n")
        screen.press("\r")
        message = bob.hear()
        assert message.payload["content"]["text"] == "def f():\n\n    return 1"
        bob.reply(message, "nice")
        screen.read_until("nice\r\n")
        screen.paste("/usr/bin\n/usr/sbin")  # no command
        screen.press("\r")
        assert bob.hear().payload["content"]["text"] == "/usr/bin\n/usr/sbin"


# During a turn


def test_a_paste_during_a_turn_is_one_message(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me, **XTERM) as screen:
        screen.type("first")
        first = bob.hear()
        screen.read_until(PASTE_ON)
        screen.paste("one\rtwo\r\nthree")
        screen.read_until("one↵two↵three")
        screen.press("\r")
        assert bob.hear().payload["content"]["text"] == "one\ntwo\nthree"
        bob.reply(first, "done")
        screen.read_until("done")
        screen.press(CTRL_C)
        bob.hear()
        screen.read_until("stopped")
        screen.press(CTRL_D)
        code, shown = screen.end()
        assert code == 0
        assert shown.rindex(PASTE_OFF) > shown.rindex(PASTE_ON)
        assert screen.mode() == screen.found


def test_ctrl_c_during_a_turn_clears_a_half_typed_line_before_it_stops_the_turn(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("count")
        message = bob.hear()
        screen.press("never mi")
        screen.read_until("never mi")
        screen.press(CTRL_C)
        screen.read_until("^C\r\n")
        screen.type("go on")
        assert bob.hear().payload["content"]["text"] == "go on"
        screen.press(CTRL_C)
        cancel = bob.hear().payload["content"]
        assert cancel["event"] == "turn.cancel"
        assert cancel["data"] != {"turn": message.message_id}  # the latest turn
        screen.read_until("stopped\r\n")


def test_a_line_is_mended_during_a_turn_and_taken_along_to_the_prompt(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        first = bob.hear()
        screen.press("worng" + BACKSPACE * 4)
        screen.read_until("worng" + "\b \b" * 4)
        bob.reply(first, "ONE")
        screen.read_until("ONE\r\n")
        screen.read_until("> w")
        screen.type("rite")
        assert bob.hear().payload["content"]["text"] == "write"


def test_words_that_come_during_a_turn_leave_the_half_typed_line(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        message = bob.hear()
        screen.press("half")
        screen.read_until("half")
        bob.tell(message, "turn.step", name="look")
        assert screen.read_until("half") == "\r\x1b[K· look\r\nhalf"
        screen.type(" done")
        assert bob.hear().payload["content"]["text"] == "half done"


def test_a_chat_that_was_suspended_takes_the_terminal_over_again(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        bob.hear()
        screen.wait_until(lambda: not screen.is_echoing())
        screen.process.send_signal(signal.SIGSTOP)
        screen.reset()  # as a shell does
        screen.process.send_signal(signal.SIGCONT)
        screen.wait_until(lambda: not screen.is_echoing())
        screen.type("second")
        assert bob.hear().payload["content"]["text"] == "second"
        assert screen.read_until("second\r\n").count("second") == 1


def test_it_is_shown_that_an_answer_is_waited_for(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me, **XTERM) as screen:
        screen.type("think")
        message = bob.hear()
        screen.read_until("working… 0 s, Ctrl-C stops it")
        screen.read_until("working… 1 s, Ctrl-C stops it")
        bob.tell(message, "turn.delta", text="it ")
        assert screen.read_until("it ").endswith("\r\x1b[Kit ")  # in its place
        bob.reply(message, "it is")
        screen.read_until("is\r\n")


def test_a_paste_that_a_turn_ends_in_is_read_on_at_the_prompt() -> None:
    keys = Keys()
    assert keys.feed(b"so: \x1b[200~one\ntw") == "so: "
    assert keys.hand_over() == "so: one\ntw"
    assert keys.feed(b"next\r") == "next\n"
    assert list(keys.lines) == ["next"]


@pytest.mark.parametrize(
    ("typed", "text", "echo"),
    [
        (b"abc", "abc", "abc"),
        ("grüß".encode(), "grüß", "grüß"),
        ("日本".encode() + b"\x7f", "日", "日本" + "\b \b" * 2),
        (b"one two\x17", "one ", "one two" + "\b \b" * 3),
        (b"one\x15", "", "one" + "\b \b" * 3),
        (b"\x7f\x15\x17", "", ""),
        (b"a\x1b[Ab\x1bOCc\x1bxd", "abcd", "abcd"),
        (b"a\tb\x07\x00", "a b", "a b"),
        (b"\x1b[200~a\x1b]0;t\x07\x1b[201~", "a\x1b]0;t\x07", "a�]0;t�"),
        (b"a\x04", "a", "a"),
    ],
)
def test_keys_grow_and_shorten_a_line_and_steer_nothing(typed: bytes, text: str, echo: str) -> None:
    whole, pieces = Keys(), Keys()
    assert (whole.feed(typed), whole.text) == (echo, text)
    shown = "".join(pieces.feed(typed[n : n + 1]) for n in range(len(typed)))
    assert (shown, pieces.text) == (echo, text)
    assert not whole.has_ended
