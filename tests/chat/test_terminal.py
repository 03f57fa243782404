"""`busd chat` on a terminal: what is seen there, which keys do what, and how it is left."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from busd import SyncClient
from tests.cli.conftest import Join
from tests.cli.partner import Partner
from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, UP, PseudoTerminal
from tests.cli.terminal import Terminal
from tests.conftest import DaemonWith
from tests.daemons import PATIENCE_SECONDS, Daemon, open_daemon


@pytest.fixture
def bob(join: Join) -> Partner:
    return Partner(join("agent:bob"))


@pytest.fixture
def me(suffix: str) -> str:
    return f"ann{suffix}"


def open_chat(
    terminal: Terminal, bob: Partner, me: str, *args: str, **environment: str
) -> PseudoTerminal:
    screen = PseudoTerminal(
        terminal, "chat", "--agent", bob.address, "--as", me, *args, **environment
    )
    screen.see(f"you are terminal:{me}; /help lists the commands")
    screen.see_prompt()
    return screen


def test_a_conversation_is_seen_as_it_goes(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("hello")
        message = bob.hear()
        assert message.payload["content"]["text"] == "hello"
        bob.tell(message, "turn.delta", text="one ")
        screen.see("> hello", "one", ">")
        bob.tell(message, "turn.step", name="look", status="complete")
        screen.see("> hello", "one", "· look: complete", ">")
        bob.reply(message, "one two")
        screen.see("· look: complete", "two", ">")
        screen.press(CTRL_D)
        assert screen.end() == 0
        assert screen.mode() == screen.found


def test_what_is_typed_during_a_turn_is_heard(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        first = bob.hear()
        screen.type("second")
        second = bob.hear()
        assert second.payload["content"]["text"] == "second"
        bob.reply(first, "ONE")
        bob.reply(second, "TWO")
        screen.see("ONE")
        screen.see("TWO", ">")


def test_what_is_no_text_is_told_also_during_a_turn(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        bob.hear()
        os.write(screen.ours, b"\xff\r")
        assert screen.end() == 2
        assert "what was typed or piped in is not UTF-8" in screen.output
        assert "Traceback" not in screen.output


def test_one_answer_to_merged_messages_is_enough(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("first")
        bob.hear()
        screen.type("second")
        bob.reply(bob.hear(), "both")
        screen.see("both", ">")


def test_stop_cancels_the_turn(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("count")
        message = bob.hear()
        bob.tell(message, "turn.delta", text="one")
        screen.see("one")
        screen.type("/stop")
        cancel = bob.hear()
        assert (cancel.type, cancel.sender) == ("agent_event", f"terminal:{me}")
        data = {"turn": message.message_id}
        assert cancel.payload["content"] == {"event": "turn.cancel", "data": data}
        screen.see("stopped", ">")
        bob.tell(message, "turn.delta", text="late")
        bob.reply(message, "late")
        screen.type("/stop")
        screen.see("no answer is in progress")
        assert "late" not in screen.output


def test_ctrl_c_cancels_the_turn_and_then_leaves(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("count")
        message = bob.hear()
        screen.press(CTRL_C)
        assert bob.hear().payload["content"]["data"] == {"turn": message.message_id}
        screen.see("stopped", ">")
        screen.press(CTRL_C)
        assert screen.end() == 130
        assert "Traceback" not in screen.output
        assert screen.is_echoing()


def test_a_second_ctrl_c_leaves_an_agent_that_does_not_stop(
    terminal: Terminal, join: Join, me: str
) -> None:
    deaf = join("agent:deaf")
    bob = Partner(deaf)

    @deaf.on("agent_event")
    def refuse(message: dict[str, object]) -> None:
        raise RuntimeError

    with open_chat(terminal, bob, me) as screen:
        screen.type("count")
        bob.hear()
        screen.press(CTRL_C)
        screen.see("was not stopped:")
        screen.press(CTRL_C)
        assert screen.end() == 130


def test_where_there_is_nothing_to_stop_nothing_is_waited_for(
    terminal: Terminal, join: Join, me: str
) -> None:
    peer = join("agent:bob")
    bob = Partner(peer)
    over = {"status": "ok", "message": "no such turn, or it is over"}
    peer.on("agent_event")(lambda message: {"type": "general_response", "content": over})
    with open_chat(terminal, bob, me) as screen:
        screen.type("count")
        bob.hear()
        screen.type("/stop")
        screen.see("no longer waiting: no such turn, or it is over", ">")
        screen.type("count")
        bob.hear()
        peer.__exit__(None, None, None)
        screen.type("/stop")
        screen.see(f"no longer waiting: nobody is subscribed to {bob.address}", ">")


def test_an_answer_to_something_said_before_is_shown_as_such(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        bob.send(f"terminal:{me}", "tg_reply", {"text": "late"}, reply_to_message_id="earlier")
        screen.see("late answer to an earlier message:")
        screen.see("late", ">")


def test_a_question_is_answered_by_the_next_line(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("delete it")
        message = bob.hear()
        bob.tell(message, "turn.prompt", id="p", text="sure?\x1b[2J", options=["yes", "no"])
        screen.see("? sure?�[2J", "  1. yes", "  2. no")
        screen.type("1")
        answer = bob.hear().payload["content"]
        assert (answer["text"], answer["prompt_id"]) == ("yes", "p")
        bob.reply(message, "gone")
        screen.see("gone", ">")


def test_a_turn_that_fails_is_told_and_the_next_one_goes_on(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("break")
        message = bob.hear()
        bob.tell(message, "turn.error", code="exit", message="exit code 3")
        bob.reply(message, "Sorry, that failed: exit code 3")  # for those who know only replies
        screen.see("busd: exit code 3", ">")
        screen.type("again")
        bob.reply(bob.hear(), "fine")
        screen.see("fine", ">")
        assert "Sorry" not in screen.output


def test_words_that_come_unasked_leave_the_half_typed_line(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.press("half")
        screen.see_prompt("half")
        bob.send(f"terminal:{me}", "tg_message", {"text": "psst"})
        screen.see(f"[from:{bob.address}] psst", "> half")
        screen.type(" done")
        assert bob.hear().payload["content"]["text"] == "half done"


@pytest.mark.parametrize("variable", ["IGNORED", "NO_COLOR"])
def test_colours_are_left_out_on_request(
    terminal: Terminal, bob: Partner, me: str, variable: str
) -> None:
    with open_chat(terminal, bob, me, **{variable: "1"}) as screen:
        screen.type("/dance")
        screen.see("Unknown command /dance. Type /help for a list.")
        assert ("\x1b[2m" in screen.output) == (variable != "NO_COLOR")


def test_the_history_outlives_the_chat_and_is_private(
    terminal: Terminal, bob: Partner, me: str, tmp_path: Path
) -> None:
    for keys in ("remember me", UP):
        with open_chat(terminal, bob, me) as screen:
            screen.type(keys)
            message = bob.hear()
            assert message.payload["content"]["text"] == "remember me"
            bob.reply(message, "done")
            screen.see("done", ">")
            screen.press(CTRL_D)
            assert screen.end() == 0
    history = tmp_path / "state/busd/chat_history"
    assert "remember me" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


def test_escape_sequences_do_not_reach_the_terminal(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("hello")
        message = bob.hear()
        for piece in ("a\x1b", "[2Jb\x9b1m", "\x1b]0;title\x07\r", "\b\b"):
            bob.tell(message, "turn.delta", text=piece)
        bob.reply(message, "\x1bc")
        screen.see("a�[2Jb�1m�]0;title���", "�c", ">")
        for sequence in ("\x1b[2J", "\x9b", "\x1b]0;", "\x1bc"):
            assert sequence not in screen.output


def test_an_agent_of_ones_own_answers_and_is_listed_and_stopped(
    daemon_with: DaemonWith, tmp_path: Path, me: str
) -> None:
    """The real thing: a worker that is started, streams, and is told to stop."""
    script = "read line; echo $line begins; [ $line != wait ] || exec sleep 60; echo $line ends"
    workers = {"command": ["sh", "-c", script], "stream": True}
    settings = {f"workers.default.{name}": value for name, value in workers.items()}
    terminal = Terminal(tmp_path, f"unix:{daemon_with(settings).path}")
    with PseudoTerminal(terminal, "chat", "--as", me) as screen:
        screen.see_prompt()
        screen.type("it")
        screen.see("it begins", "it ends", ">")
        screen.type("wait")
        screen.see("wait begins")
        screen.type("/stop")
        screen.see("stopped", ">")
        screen.type("/agents")
        screen.see(f"terminal:{me} ")
        screen.type("again")
        screen.see("again begins", "again ends", ">")
        screen.press(CTRL_D)
        assert screen.end() == 0


def test_quit_leaves(terminal: Terminal, bob: Partner, me: str) -> None:
    with open_chat(terminal, bob, me) as screen:
        screen.type("/quit")
        assert screen.end() == 0
        assert screen.is_echoing()


def test_output_that_goes_elsewhere_has_no_prompt(
    terminal: Terminal, bob: Partner, me: str, tmp_path: Path
) -> None:
    from tests.cli.terminal import BUSD

    words = " ".join([*BUSD, "chat", "--agent", bob.address, "--as", me])
    with PseudoTerminal(terminal, command=["sh", "-c", f"{words} > out"]) as screen:
        screen.type("hello")
        bob.reply(bob.hear(), "hi")
        screen.press(CTRL_D)
        assert screen.end() == 0
    assert (tmp_path / "out").read_text() == "hi\n"


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    with open_daemon("uvloop") as daemon:
        yield daemon


def test_a_bus_that_restarts_is_told_and_survived(
    own_daemon: Daemon, tmp_path: Path, me: str
) -> None:
    address = f"unix:{own_daemon.path}"
    with SyncClient("agent:bob", address=address, timeout_seconds=PATIENCE_SECONDS) as peer:
        bob = Partner(peer)
        with open_chat(Terminal(tmp_path, address), bob, me) as screen:
            screen.type("before")
            bob.reply(bob.hear(), "one")
            screen.see("one", ">")
            screen.type("lost")
            lost = bob.hear()
            assert own_daemon.stop() == 0
            screen.see("connection lost; reconnecting…")
            screen.see("busd: connection lost before the answer came", ">")
            screen.see_status("connection lost; reconnecting…")
            own_daemon.start_again("uvloop")
            screen.see("connected again")
            peer.ping()
            bob.reply(lost, "after all")  # what was given up may come
            screen.see("late answer to an earlier message:")
            screen.see("after all")
            screen.type("after")
            bob.reply(bob.hear(), "two")
            screen.see("two", ">")


def test_a_worker_says_on_a_terminal_how_to_talk_to_it(
    terminal: Terminal, bob: Partner, suffix: str
) -> None:
    name = f"agent:words{suffix}"
    with PseudoTerminal(terminal, "worker", "--client-id", name, "--exec", "wc", "-w") as screen:
        screen.see(f"{name} is on the bus; `busd chat --agent {name}` talks to it")
        assert terminal.busd("chat", "--agent", name, stdin="one two\n").out.strip() == "2"
        screen.press(CTRL_C)
        assert screen.end() == 0
