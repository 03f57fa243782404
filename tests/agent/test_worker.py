"""`busd worker` as a process: what it is told, how it ends, and what a kill costs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from busd import SyncClient
from busd_plugins.bub.settings import WorkerSettings
from busd_plugins.bub.starting import worker_command
from tests.agent.endpoint import open_endpoint, streamed
from tests.cli.terminal import Running, Terminal
from tests.daemons import PATIENCE_SECONDS


@pytest.fixture
def terminal(tmp_path: Path, address: str) -> Terminal:
    return Terminal(tmp_path, address)


@pytest.fixture
def chat(address: str, suffix: str) -> Iterator[Chat]:
    name = f"tg:7{suffix}"
    with SyncClient(name, address=address, timeout_seconds=PATIENCE_SECONDS) as bus:
        bus.subscribe(f"events:{name}")
        yield Chat(bus, f"agent:p{suffix}")


class Chat:
    """Somebody who writes to a worker that is a process of its own."""

    def __init__(self, bus: SyncClient, worker: str) -> None:
        self.bus = bus
        self.worker = worker
        self._messages = bus.messages()

    def command(self, workspace: Path, **settings: Any) -> list[str]:
        """Return the command line that a spawner would start."""
        return worker_command(
            WorkerSettings(**settings), self.worker, self.bus.client_id, workspace, "telegram"
        )

    def write(self, text: str, message_id: str | None = None) -> None:
        """Write as soon as the worker is there."""
        payload = {"type": "tg_message", "content": {"text": text}}
        while not (receipt := self.bus.send(self.worker, payload, message_id=message_id)).acks:
            pass
        assert receipt.acks[0].success, receipt

    def next(self) -> Any:
        message = next(self._messages)
        message.reply()
        return message.payload

    def text(self) -> str:
        payload = self.next()
        assert payload["type"] == "tg_reply", payload
        return str(payload["content"]["text"])


def end(running: Running) -> tuple[int, str]:
    """Tell a worker to end; give its exit code and what it said."""
    running.process.send_signal(signal.SIGTERM)
    said = running.end()
    return said.code, said.err


@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop", "trio"])
def test_a_worker_runs_on_every_loop_and_ends_when_told(
    terminal: Terminal, chat: Chat, workspace: Path, loop_name: str
) -> None:
    command = chat.command(workspace, stream=True)
    command.insert(command.index("worker") + 1, f"--loop={loop_name}")
    with terminal.start_any(command) as running:
        chat.write("hi there")
        deltas = [chat.next()["content"]["data"]["text"] for _ in range(2)]
        assert deltas == ["hi ", "there "]
        reply = chat.next()
        assert reply["content"] == {"text": "hi there", "channel": "telegram"}
        assert end(running) == (0, "")


def test_ctrl_c_ends_a_worker_in_peace(terminal: Terminal, chat: Chat, workspace: Path) -> None:
    with terminal.start_any(chat.command(workspace / "new")) as running:
        chat.write("hi")
        assert chat.text() == "hi"
        assert (workspace / "new").stat().st_mode & 0o777 == 0o700
        assert running.interrupt() == (0, "", "")


def test_a_worker_that_is_started_by_hand_answers_whoever_writes(
    terminal: Terminal, chat: Chat
) -> None:
    terminal.environment["USER"] = chat.worker.removeprefix("agent:")
    chat.worker += "-worker"
    with terminal.start("worker", "--exec", "tr", "a-z", "A-Z") as running:
        chat.write("loud")
        assert chat.text() == "LOUD"
        assert end(running)[0] == 0
    assert not (terminal.folder / "data").exists()


def test_a_message_whose_worker_is_killed_is_answered_once_by_the_next(
    terminal: Terminal, chat: Chat, workspace: Path
) -> None:
    os.mkfifo(workspace / "go")
    command = chat.command(workspace, command=["sh", "-c", "echo $$; cat go"], stream=True)
    with terminal.start_any(command) as running:
        chat.write("hi", "m")
        begun = chat.next()["content"]["data"]
        running.process.kill()
        running.process.wait()
        os.killpg(int(begun["text"]), signal.SIGKILL)  # as every spawner does
    with terminal.start_any(command) as running:
        again = chat.next()["content"]["data"]
        assert again["turn"] == "m"
        chat.write("hi", "m")  # whoever sent it may send it again
        (workspace / "go").write_text("done")
        assert chat.text() == f"{again['text']}done"
        assert end(running)[0] == 0


def test_a_persistent_worker_speaks_lines(terminal: Terminal, chat: Chat, workspace: Path) -> None:
    program = [sys.executable, "-u", "-c", "while 1: print(eval(input('? ')))"]
    command = chat.command(workspace, command=program, persistent="lines", prompt="? ")
    with terminal.start_any(command) as running:
        chat.write("6 * 7")
        assert chat.text() == "42"
        chat.write("x")
        assert chat.next()["content"]["event"] == "turn.error"
        said = "Sorry, that failed: the program ended with exit code 1: "
        text = chat.text()
        assert text.startswith(said)
        assert text.endswith("NameError: name 'x' is not defined")
        chat.write("1 + 1")
        assert chat.text() == "2"
        code, log = end(running)
        assert code == 0
        assert "NameError" in log


@pytest.mark.parametrize("loop_name", ["asyncio", "trio"])
def test_the_key_of_an_endpoint_is_seen_nowhere(
    terminal: Terminal, chat: Chat, workspace: Path, loop_name: str
) -> None:
    terminal.environment["OPENAI_API_KEY"] = "sk-very-secret"
    with open_endpoint() as endpoint:
        endpoint.answers = [streamed("fine")]
        command = chat.command(workspace, openai_url=endpoint.url, model="m")
        command.insert(command.index("worker") + 1, f"--loop={loop_name}")
        with terminal.start_any(command) as running:
            chat.write("hi")
            assert chat.text() == "fine"
            assert b"secret" not in Path(f"/proc/{running.process.pid}/cmdline").read_bytes()
            code, log = end(running)
    assert code == 0
    assert "secret" not in log
    assert endpoint.asked[0].headers["Authorization"] == "Bearer sk-very-secret"
    for file in workspace.rglob("*"):
        assert file.is_dir() or "secret" not in file.read_text()


def test_a_worker_without_a_bus_says_so(tmp_path: Path) -> None:
    said = Terminal(tmp_path).busd("worker")
    assert said.code == 69
    assert said.err.startswith("busd: no bus at ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--echo", "--exec", "cat"], "give one of --exec, --openai and --echo"),
        (["--exec"], "--exec needs a COMMAND, and stands before it"),
        (["cat"], "--exec needs a COMMAND, and stands before it"),
        (["--arg"], "--arg and --persistent belong to --exec"),
        (["--persistent", "json"], "--arg and --persistent belong to --exec"),
        (["--arg", "--persistent", "json", "--exec", "cat"], "standard input: no --arg"),
        (["--until", "x", "--exec", "cat"], "belong to --persistent lines"),
        (
            ["--persistent", "lines", "--until", "x", "--prompt", "y", "--exec", "cat"],
            "give one of --until and --prompt",
        ),
        (["--openai", "http://h/v1"], "--openai and --model belong together"),
        (["--model", "m"], "--openai and --model belong together"),
        (["--openai", "ftp://h", "--model", "m"], "begins with http:// or https://"),
        (["--when-busy", "dance"], "'dance' is not one of"),
        (["--seconds", "0"], "0.0 is not in the range x>0"),
        (["--client-id", "a b"], "malformed address"),
    ],
)
def test_a_mistake_in_typing_is_explained(
    terminal: Terminal, args: list[str], problem: str
) -> None:
    said = terminal.busd("worker", *args)
    assert (said.code, said.out) == (2, "")
    assert problem in " ".join(said.err.split())
    assert "Traceback" not in said.err


def test_a_secret_on_the_command_line_is_refused(terminal: Terminal) -> None:
    said = terminal.busd("worker", "--openai", "http://me:word@h/v1", "--model", "m")
    assert said.code == 78
    assert "word" not in said.err


def test_a_workspace_that_can_be_none_is_a_bad_setting(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = terminal.busd("worker", "--workspace", "file")
    problem = f"busd: {tmp_path}/file cannot be a workspace: File exists\n"
    assert said == (78, "", problem)


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("nosuchprogram", "program 'nosuchprogram' not found in PATH"),
        ("/no/such", "program /no/such does not exist"),
        ("./plain", "./plain cannot be executed"),
        ("/etc", "/etc cannot be executed"),
    ],
)
def test_a_program_that_is_not_there_fails_at_once(
    terminal: Terminal, tmp_path: Path, program: str, fault: str
) -> None:
    (tmp_path / "plain").touch()
    for kind in ([], ["--persistent", "lines"]):
        said = terminal.busd("worker", *kind, "--exec", program, "x")
        assert said == (78, "", f"busd: --exec: {fault}; install it, or name another program\n")


def test_a_program_of_the_workspace_is_found_there(
    terminal: Terminal, chat: Chat, workspace: Path
) -> None:
    program = workspace / "answer"
    program.write_text("#!/bin/sh\necho of the workspace\n")
    program.chmod(0o755)
    with terminal.start_any(chat.command(workspace, command=["./answer"])) as running:
        chat.write("hi")
        assert chat.text() == "of the workspace"
        assert end(running)[0] == 0


def test_without_httpx_it_is_said_what_to_install(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("raise ImportError")
    path = f"{tmp_path}:{terminal.environment['PYTHONPATH']}"
    args = ["worker", "--openai", "http://127.0.0.1:1/v1", "--model", "m"]
    said = terminal.busd(*args, PYTHONPATH=path)
    assert said.code == 78
    assert "pip install 'busd[openai]'" in said.err


def test_the_echo_imports_no_more_than_it_needs(terminal: Terminal, tmp_path: Path) -> None:
    program = (
        "import sys, busd.cli.main, busd.agent.agent, busd.cli.worker\n"
        "print(*sorted({'trio', 'uvloop', 'httpx', 'structlog', 'websockets', 'jsonrpcserver',"
        "'prometheus_client', 'sqlite3', 'subprocess'} & sys.modules.keys()))"
    )
    with ExitStack() as stack:
        running = stack.enter_context(terminal.start_any([sys.executable, "-c", program]))
        assert running.end().out.split() == []
