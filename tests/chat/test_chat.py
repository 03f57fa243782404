"""`busd chat` in a pipe: each line is a message whose answer is waited for."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from busd import Refuse, SyncClient
from busd.client.sync import SyncIncoming
from tests.cli.conftest import Join
from tests.cli.partner import Partner
from tests.cli.terminal import BUSD, Said, Terminal
from tests.daemons import PATIENCE_SECONDS, open_daemon

Answer = Callable[[Partner, SyncIncoming], None]


@pytest.fixture
def bob(join: Join) -> Partner:
    return Partner(join("agent:bob"))


@pytest.fixture
def me(suffix: str) -> str:
    return f"ann{suffix}"


@contextmanager
def start(terminal: Terminal, *args: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*BUSD, "chat", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=terminal.environment | environment,
        cwd=terminal.folder,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def chat(
    terminal: Terminal, bob: Partner, me: str, *answers: Answer, lines: str = "hi\n", args: Any = ()
) -> Said:
    """Pipe lines into a chat with bob, who answers one after the other."""
    with start(terminal, "--agent", bob.address, "--as", me, *args) as process:
        assert process.stdin is not None
        process.stdin.write(lines)
        process.stdin.close()
        process.stdin = None
        for answer in answers:
            answer(bob, bob.hear())
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return Said(process.returncode, out, err)


def echo(bob: Partner, message: SyncIncoming) -> None:
    bob.reply(message, message.payload["content"]["text"].upper())


def test_each_line_is_a_message_and_each_answer_a_line(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    said = chat(terminal, bob, me, echo, echo, lines="hi\n\n  \nthere")
    assert said == (0, "HI\nTHERE\n", "")


def test_a_line_is_a_chat_message_of_this_terminal(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    heard: list[SyncIncoming] = []

    def answer(bob: Partner, message: SyncIncoming) -> None:
        heard.append(message)
        bob.reply(message, "ok")

    assert chat(terminal, bob, me, answer, lines="grüß dich\n").code == 0
    [message] = heard
    assert (message.sender, message.type) == (f"terminal:{me}", "tg_message")
    assert message.payload["from"] == f"terminal:{me}"
    content = {"text": "grüß dich", "senderId": me, "channel": "terminal"}
    assert message.payload["content"] == content


def test_without_agent_the_chat_gets_an_agent_of_its_own(terminal: Terminal, me: str) -> None:
    said = terminal.busd("chat", "--as", me, stdin="hi\nthere\n")
    assert said == (0, "hi\nthere\n", "")  # the built-in echo
    said = terminal.busd("chat", "--as", me, stdin="/agents\n")
    assert f"terminal:{me} " in said.out


def test_an_answer_in_the_ack_is_shown_once(terminal: Terminal, join: Join, me: str) -> None:
    bob = join("agent:bob")

    @bob.on("tg_message")
    def answer(message: SyncIncoming) -> dict[str, Any]:
        reply = {"type": "tg_reply", "content": {"text": "hello"}}
        bob.send(message.sender, reply | {"reply_to_message_id": message.message_id})
        return reply

    said = terminal.busd("chat", "--agent", bob.client_id, "--as", me, stdin="hi\nhi\n")
    assert said == (0, "hello\nhello\n", "")


def test_an_answer_in_the_ack_that_cannot_be_read_is_told(
    terminal: Terminal, join: Join, me: str
) -> None:
    bob = join("agent:bob")
    bob.on()(lambda message: {"type": "tg_reply", "content": {"text": 7}})
    said = terminal.busd("chat", "--agent", bob.client_id, "--as", me, stdin="hi\n")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"busd: {bob.client_id}: tg_reply: content.text: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("deltas", "reply", "shown"),
    [
        (["he", "llo"], "hello", "hello\n"),
        (["he"], "hello", "hello\n"),
        (["one\n", "two\n"], "one\ntwo", "one\ntwo\n"),
        (["one\n", "two\n"], "one\ntwo\n", "one\ntwo\n"),
        (["one\n"], "one\ntwo", "one\ntwo\n"),
        (["  one"], "one", "  one\n"),
        (["draft"], "final", "draft\nfinal\n"),
        (["not final"], "final", "not final\nfinal\n"),
        (["one\n", "one\n", "two\n"], "one\ntwo", "one\none\ntwo\n"),  # killed, begun anew
        ([""], "final", "final\n"),
        (["", " "], "final", " \nfinal\n"),
        ([], "", "\n"),
    ],
)
def test_what_was_streamed_is_not_shown_again(
    terminal: Terminal, bob: Partner, me: str, deltas: list[str], reply: str, shown: str
) -> None:
    def answer(bob: Partner, message: SyncIncoming) -> None:
        for delta in deltas:
            bob.tell(message, "turn.delta", text=delta)
        bob.reply(message, reply)

    assert chat(terminal, bob, me, answer) == (0, shown, "")


def test_words_are_shown_as_they_come(terminal: Terminal, bob: Partner, me: str) -> None:
    with start(terminal, "--agent", bob.address, "--as", me) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("hi\n")
        process.stdin.close()
        process.stdin = None
        message = bob.hear()
        bob.tell(message, "turn.delta", text="first\n")
        assert process.stdout.readline() == "first\n"  # the turn still runs
        bob.reply(message, "first\nsecond")
        assert process.communicate(timeout=PATIENCE_SECONDS) == ("second\n", "")
    assert process.returncode == 0


def test_a_script_gets_only_answers_to_its_own_words(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    def answer(bob: Partner, message: SyncIncoming) -> None:
        late = {"reply_to_message_id": "of-an-earlier-chat"}
        bob.send(message.sender, "tg_reply", {"text": "late"}, **late)
        bob.reply(message, "mine")

    assert chat(terminal, bob, me, answer) == (0, "mine\n", "")


@pytest.mark.parametrize("args", [["agents"], ["plugins", "--json"], ["agents", "--help"]])
def test_a_full_disk_is_told(terminal: Terminal, args: list[str]) -> None:
    said = terminal.run(["sh", "-c", 'exec "$@" > /dev/full', "sh", *BUSD, *args])
    assert said == (1, "", "busd: what it prints cannot be written: No space left on device\n")


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_an_answer_that_cannot_be_written_is_told(
    terminal: Terminal, join: Join, me: str, args: list[str]
) -> None:
    bob = join("agent:bob")
    bob.on()(lambda message: {"type": "tg_reply", "content": {"text": "hello"}})
    command = [*BUSD, "chat", "--agent", bob.client_id, "--as", me, *args]
    said = terminal.run(["sh", "-c", 'exec "$@" > /dev/full', "sh", *command], stdin="hi\n")
    assert said == (1, "", "busd: what it prints cannot be written: No space left on device\n")


def test_steps_are_talk_and_do_not_break_the_words(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    def answer(bob: Partner, message: SyncIncoming) -> None:
        bob.tell(message, "turn.delta", text="it is ")
        bob.tell(message, "turn.step", id="1", name="look\nup\x1b[2J", status="in_progress")
        bob.tell(message, "turn.step", id="1", tool="clock", status="complete", extra=[1])
        bob.reply(message, "it is late")

    expected = "· look up�[2J: in_progress\n· clock: complete\n"
    assert chat(terminal, bob, me, answer) == (0, "it is late\n", expected)


def test_the_line_after_a_question_answers_it(terminal: Terminal, bob: Partner, me: str) -> None:
    answers: list[Any] = []

    def ask(bob: Partner, message: SyncIncoming) -> None:
        bob.tell(message, "turn.prompt", id="p1", text="sure?", options=["yes", "no"])
        answer = bob.hear()
        answers.append(answer.payload["content"])
        options = [{"label": "Red", "value": "r"}, {"label": "Blue", "value": "b"}]
        bob.tell(message, "turn.prompt", id="p2", text="colour?", options=options)
        answers.append(bob.hear().payload["content"])
        bob.reply(message, "done")

    said = chat(terminal, bob, me, ask, echo, lines="paint\nyes\n2\nbye\n")
    shown = "? sure?\n  1. yes\n  2. no\n? colour?\n  1. Red\n  2. Blue\ndone\nBYE\n"
    assert said == (0, shown, "")
    assert [(each["text"], each["prompt_id"]) for each in answers] == [("yes", "p1"), ("b", "p2")]


def test_a_question_without_a_line_for_it_is_told(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    def ask(bob: Partner, message: SyncIncoming) -> None:
        bob.tell(message, "turn.prompt", id="p", text="sure?")

    said = chat(terminal, bob, me, ask)
    problem = "busd: standard input ended before the question was answered\n"
    assert said == (1, "? sure?\n", problem)


def test_a_standard_input_that_is_closed_is_told(terminal: Terminal, bob: Partner, me: str) -> None:
    args = [*BUSD, "chat", "--agent", bob.address, "--as", me]
    said = terminal.run(["sh", "-c", 'exec "$@" <&-', "sh", *args])
    assert said == (1, "", "busd: there is no standard input to read from\n")


def test_an_empty_line_is_no_answer_where_one_is_required(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    def ask(bob: Partner, message: SyncIncoming) -> None:
        bob.tell(message, "turn.prompt", id="p", text="name?", placeholder="any", required=True)
        bob.reply(message, f"hello {bob.hear().payload['content']['text']}")

    said = chat(terminal, bob, me, ask, lines="hi\n\nann\n")
    assert said == (0, "? name? (any)\nhello ann\n", "an answer is required\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb\x07c\x00d\x7f", "a�[2Jb�c�d�"),
        ("a\u009b1mb\u202ec\u200bd", "a�1mb�c�d"),
        ("\x1b]0;title\x07", "�]0;title�"),
        ("one\r\ntwo\rthree\tfour", "one\ntwothree\tfour"),
    ],
)
def test_no_answer_steers_the_terminal(
    terminal: Terminal, bob: Partner, me: str, text: str, shown: str
) -> None:
    def stream(bob: Partner, message: SyncIncoming) -> None:
        for character in text:  # an escape sequence in pieces is one all the same
            bob.tell(message, "turn.delta", text=character)
        bob.reply(message, text)

    said = chat(
        terminal, bob, me, stream, lambda bob, message: bob.reply(message, text), lines="a\nb"
    )
    assert said == (0, f"{shown}\n{shown}\n", "")


def test_a_turn_that_fails_ends_it(terminal: Terminal, bob: Partner, me: str) -> None:
    def fail(bob: Partner, message: SyncIncoming) -> None:
        bob.tell(message, "turn.error", code="exit", message="exit code 3\x1b[2J")

    said = chat(terminal, bob, me, fail, lines="hi\nunheard\n")
    assert said == (1, "", "busd: exit code 3�[2J\n")


@pytest.mark.parametrize(
    ("refusal", "code"), [(Refuse("not today"), 1), (Refuse("not today", retry_seconds=1), 75)]
)
def test_a_message_that_is_refused_ends_it(
    terminal: Terminal, join: Join, me: str, refusal: Refuse, code: int
) -> None:
    bob = join("agent:bob")

    @bob.on()
    def refuse(message: SyncIncoming) -> None:
        raise refusal

    said = terminal.busd("chat", "--agent", bob.client_id, "--as", me, stdin="hi\nthere\n")
    assert said == (code, "", f"busd: {bob.client_id}: not today\n")


def test_an_agent_that_is_not_there_is_told(terminal: Terminal, me: str) -> None:
    said = terminal.busd("chat", "--agent", "agent:nobody", "--as", me, stdin="hi\n")
    assert said == (1, "", "busd: nobody is subscribed to agent:nobody\n")


def test_an_answer_that_does_not_come_is_told(terminal: Terminal, bob: Partner, me: str) -> None:
    said = terminal.busd(
        "chat", "--agent", bob.address, "--as", me, "--timeout", "0.05", stdin="hi\n"
    )
    assert said == (75, "", f"busd: no answer from {bob.address} in 0.05 seconds\n")


def test_an_answer_that_does_not_come_in_time_is_cancelled(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    args = ("--agent", bob.address, "--as", me, "--timeout", "0.05")
    assert terminal.busd("chat", *args, stdin="hi\n").code == 75
    message, cancel = bob.hear(), bob.hear()
    assert cancel.payload["content"] == {
        "event": "turn.cancel",
        "data": {"turn": message.message_id},
    }


def test_no_lines_are_no_messages(terminal: Terminal, bob: Partner, me: str) -> None:
    assert chat(terminal, bob, me, lines="") == (0, "", "")


def test_a_plain_file_is_as_good_as_a_pipe(
    terminal: Terminal, bob: Partner, me: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("hi\nthere\n")
    command = f'exec "$@" < {tmp_path / "lines"}'
    args = [*BUSD, "chat", "--agent", bob.address, "--as", me]

    def answer_both() -> None:
        for _ in range(2):
            echo(bob, bob.hear())

    answering = threading.Thread(target=answer_both)
    answering.start()
    said = terminal.run(["sh", "-c", command, "sh", *args])
    answering.join()
    assert said == (0, "HI\nTHERE\n", "")


def test_json_is_one_message_a_line(terminal: Terminal, bob: Partner, me: str) -> None:
    def answer(bob: Partner, message: SyncIncoming) -> None:
        bob.tell(message, "turn.delta", text="he\x9b")
        bob.reply(message, "hello")

    said = chat(terminal, bob, me, answer, args=["--json"])
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert all(line.isprintable() for line in lines)
    delta, reply = (json.loads(line) for line in lines)
    assert delta["payload"]["content"]["data"]["text"] == "he\x9b"
    assert reply.keys() == {"from", "to", "messageId", "payload"}
    assert (reply["from"], reply["to"]) == (bob.address, f"terminal:{me}")
    assert reply["payload"]["content"] == {"text": "hello"}


def test_commands_work_in_a_pipe(terminal: Terminal, bob: Partner, me: str) -> None:
    lines = "/help\n/dance\n/stop\n//slash\n/quit\nunheard\n"
    said = chat(terminal, bob, me, echo, lines=lines)
    assert (said.code, said.out) == (0, "/SLASH\n")
    assert "/agents" in said.err
    assert "Unknown command /dance. Type /help for a list." in said.err
    assert "no answer is in progress" in said.err


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        ("tg_reply", {"text": 7}, "tg_reply: content.text: "),
        ("tg_reply", {}, "tg_reply: content: "),
        ("agent_event", {"event": "turn.delta", "data": {"text": []}}, "agent_event turn.delta: "),
        ("agent_event", {"event": "turn.prompt", "data": {}}, "agent_event turn.prompt: "),
        ("agent_event", {"event": "turn.delta", "data": 5}, "agent_event turn.delta: "),
        ("route_assigned", [], "route_assigned: "),
    ],
)
def test_what_cannot_be_read_is_refused_and_survived(
    terminal: Terminal, bob: Partner, me: str, kind: str, content: Any, problem: str
) -> None:
    def answer(bob: Partner, message: SyncIncoming) -> None:
        [ack] = bob.peer.send(message.sender, {"type": kind, "content": content}).acks
        assert not ack.success
        assert ack.message.startswith(problem)
        bob.reply(message, "fine")

    said = chat(terminal, bob, me, answer)
    assert (said.code, said.out) == (0, "fine\n")
    assert f"busd: {bob.address}: {problem}" in said.err


def test_what_others_send_does_not_disturb(terminal: Terminal, bob: Partner, me: str) -> None:
    def answer(bob: Partner, message: SyncIncoming) -> None:
        about = {"turn": "another"}
        bob.send(message.sender, "agent_event", {"event": "turn.delta", "data": about})
        bob.send(message.sender, "agent_event", {"event": "spawned", "data": {}})
        bob.send(message.sender, "route_assigned", {"chat_id": me, "agent_id": "agent:x"})
        bob.send(message.sender, "spawn_result", {"success": True, "client_id": "agent:x"})
        bob.send(message.sender, "strange", {})
        bob.send(message.sender, "tg_message", {"text": "psst"})
        bob.reply(message, "fine")

    said = chat(terminal, bob, me, answer)
    assert said == (0, f"[from:{bob.address}] psst\nfine\n", "")


def test_the_second_chat_of_a_user_has_another_name(
    terminal: Terminal, bob: Partner, suffix: str
) -> None:
    login = f"ann{suffix}"
    agent = ("--agent", bob.address)
    with start(terminal, *agent, LOGNAME=login) as first:
        assert first.stdin is not None
        first.stdin.write("hi\n")
        first.stdin.flush()
        message = bob.hear()
        assert message.sender == f"terminal:{login}"
        second = terminal.busd("chat", *agent, LOGNAME=login)
        assert second == (0, "", f"you chat elsewhere already; here you are terminal:{login}-2\n")
        same = terminal.busd("chat", *agent, "--as", login)
        assert same == (0, "", f"terminal:{login} chats elsewhere, too: both see the answers\n")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--as", "two words"], "malformed address"),
        (["--as", "a" * 300], "malformed address"),
        (["--as", "a*"], "malformed address"),
        (["--agent", ""], "malformed address"),
        (["--agent", "agent:*"], "malformed address"),
        (["--timeout", "0"], "0.0 is not in the range"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_a_mistake_in_typing_is_explained(
    terminal: Terminal, args: list[str], problem: str
) -> None:
    said = terminal.busd("chat", *args)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert "Traceback" not in said.err


def test_no_bus_is_told(lonely: Terminal) -> None:
    said = lonely.busd("chat", stdin="hi\n")
    assert (said.code, said.out) == (69, "")
    assert said.err.startswith("busd: no bus at unix:")


@pytest.mark.parametrize(
    ("stdin", "problem"),
    [
        (b"\xff\n", "what was typed or piped in is not UTF-8"),
        (b"a" * (1 << 21), "a line of over 1,048,576 bytes is no message"),
    ],
)
def test_what_is_no_text_is_told(
    terminal: Terminal, bob: Partner, me: str, stdin: bytes, problem: str
) -> None:
    said = terminal.busd("chat", "--agent", bob.address, "--as", me, stdin=stdin)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_script(
    terminal: Terminal, bob: Partner, me: str, number: signal.Signals
) -> None:
    with start(terminal, "--agent", bob.address, "--as", me) as process:
        assert process.stdin is not None
        process.stdin.write("hi\n")
        process.stdin.flush()
        message = bob.hear()
        process.send_signal(number)
        if number == signal.SIGINT:
            cancel = bob.hear().payload["content"]
            assert cancel == {"event": "turn.cancel", "data": {"turn": message.message_id}}
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (128 + number, "")
    assert "Traceback" not in err


def test_a_signal_ends_a_script_that_waits_for_a_line(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with start(terminal, "--agent", bob.address, "--as", me) as process:
        assert process.stdin is not None
        process.stdin.write("hi\n")
        process.stdin.flush()
        echo(bob, bob.hear())
        assert process.stdout is not None
        assert process.stdout.readline() == "HI\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130
        process.stdin.close()
        process.stdin = None
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_reader_that_has_seen_enough_ends_it_quietly(
    terminal: Terminal, bob: Partner, me: str
) -> None:
    with start(terminal, "--agent", bob.address, "--as", me) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("hi\n")
        process.stdin.flush()
        message = bob.hear()
        process.stdout.close()
        bob.peer.post(
            message.sender,
            {
                "type": "tg_reply",
                "reply_to_message_id": message.message_id,
                "content": {"text": "hello"},
            },
        )
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr.read() == ""
        process.stdin.close()
        process.stdin = None


def test_a_script_whose_bus_goes_away_is_told(tmp_path: Path, me: str) -> None:
    with open_daemon("uvloop") as daemon:
        address = f"unix:{daemon.path}"
        with SyncClient("agent:bob", address=address, timeout_seconds=PATIENCE_SECONDS) as peer:
            bob = Partner(peer)
            with start(Terminal(tmp_path, address), "--agent", bob.address) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("one\n")
                process.stdin.flush()
                bob.reply(bob.hear(), "ONE")
                assert process.stdout.readline() == "ONE\n"
                assert daemon.stop() == 0
                assert process.stderr is not None
                assert process.stderr.readline() == "connection lost; reconnecting…\n"
                daemon.start_again("uvloop")
                assert process.stderr.readline() == "connected again\n"
                peer.ping()
                process.stdin.write("two\n")  # between two lines it is survived
                process.stdin.flush()
                bob.reply(bob.hear(), "TWO")
                assert process.stdout.readline() == "TWO\n"
                process.stdin.write("three\n")
                process.stdin.flush()
                bob.hear()
                assert daemon.stop() == 0
                _, err = process.communicate(timeout=PATIENCE_SECONDS)
                assert process.returncode == 75
                assert "connection lost before" in err or "may have been delivered" in err
                daemon.start_again("uvloop")


def test_the_chat_leaves_the_bus_when_it_ends(terminal: Terminal, bob: Partner, me: str) -> None:
    assert chat(terminal, bob, me, echo).code == 0
    peers = [each["clientId"] for each in bob.peer.status()["connections"]]
    assert f"terminal:{me}" not in peers
