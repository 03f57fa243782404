"""`busd agents`: the workers of the bus as their operator sees them."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.terminal import BUSD, Terminal
from tests.conftest import DaemonWith
from tests.daemons import PATIENCE_SECONDS


@pytest.fixture
def talkative(daemon_with: DaemonWith, tmp_path: Path) -> Terminal:
    """A bus whose workers are commands that write to stderr and answer."""
    script = "read line; echo said: $line >&2; echo answer: $line"
    daemon = daemon_with({"workers.default.command": ["sh", "-c", script]})
    return Terminal(tmp_path, f"unix:{daemon.path}")


def spawn(terminal: Terminal, chat_id: str) -> str:
    said = terminal.busd("agents", "spawn", chat_id)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("agent:worker-")
    return said.out.strip()


def test_an_agent_is_spawned_once_for_a_chat(terminal: Terminal, suffix: str) -> None:
    first = spawn(terminal, f"a{suffix}")
    assert spawn(terminal, f"a{suffix}") == first
    assert spawn(terminal, f"b{suffix}") != first


def test_who_sends_as_somebody_speaks_to_the_agent_of_that_chat(
    terminal: Terminal, suffix: str
) -> None:
    address = f"tg:7{suffix}"
    agent = terminal.busd("agents", "spawn", f"7{suffix}", "--channel", "telegram").out.strip()
    assert terminal.busd("send", "system:route", "hi", "--from", address, "--wait").code == 0
    known = json.loads(terminal.busd("agents", "ls", "--json").out)["agents"]
    assert [each["clientId"] for each in known if each["talkto"] == address] == [agent]


def test_spawn_says_it_as_json(terminal: Terminal, suffix: str) -> None:
    said = terminal.busd("agents", "spawn", f"a{suffix}", "--channel", "telegram", "--json")
    assert (said.code, said.err) == (0, "")
    result = json.loads(said.out)
    assert (result["success"], result["status"]) == (True, "running")


@pytest.mark.parametrize("args", [[], ["ls"], ["ls", "--status", "running"]])
def test_the_agents_are_a_table(terminal: Terminal, suffix: str, args: list[str]) -> None:
    agent = spawn(terminal, f"a{suffix}")
    said = terminal.busd("agents", *args)
    assert (said.code, said.err) == (0, "")
    head, *rows = said.out.splitlines()
    columns = ["AGENT", "CHAT", "STATUS", "PID", "LAST", "HEARD", "WAITING", "SETTINGS"]
    assert head.split() == columns
    [row] = [row.split() for row in rows if row.startswith(agent)]
    assert row[1:3] == [f"terminal:a{suffix}", "running"]
    assert row[3].isdigit()
    assert row[-1] == "current"


def test_a_limit_says_that_there_are_more(terminal: Terminal, suffix: str) -> None:
    spawn(terminal, f"a{suffix}")
    last = spawn(terminal, f"b{suffix}")
    said = terminal.busd("agents", "ls", "--limit", "1")
    assert (said.code, said.out.count("\n")) == (0, 2)
    assert last in said.out
    assert said.err.startswith("1 of ")


@pytest.mark.parametrize("args", [["--json"], ["ls", "--json"]])
def test_the_agents_are_json(terminal: Terminal, suffix: str, args: list[str]) -> None:
    agent = spawn(terminal, f"a{suffix}")
    said = terminal.busd("agents", *args)
    assert (said.code, said.err, said.out.count("\n")) == (0, "", 1)
    [found] = [each for each in json.loads(said.out)["agents"] if each["clientId"] == agent]
    assert (found["chatId"], found["status"]) == (f"a{suffix}", "running")


def test_a_stopped_agent_is_listed_as_such_and_started_again(
    terminal: Terminal, suffix: str
) -> None:
    agent = spawn(terminal, f"a{suffix}")
    assert terminal.busd("agents", "stop", agent) == (0, "", f"{agent} is stopped\n")
    assert agent in terminal.busd("agents", "ls", "--status", "stopped").out
    assert agent not in terminal.busd("agents", "ls", "--status", "running").out
    assert terminal.busd("agents", "restart", agent) == (0, "", f"{agent} is running\n")
    stopped = terminal.busd("agents", "stop", agent, "--json")
    assert json.loads(stopped.out)["status"] == "stopped"


def test_show_tells_all_there_is_to_know(terminal: Terminal, suffix: str) -> None:
    agent = spawn(terminal, f"a{suffix}")
    said = terminal.busd("agents", "show", agent)
    assert (said.code, said.err) == (0, "")
    facts = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert facts["clientId"] == agent
    assert facts["talkto"] == f"terminal:a{suffix}"
    assert facts["workspace"].endswith(f"/terminal-a{suffix}")
    shown = json.loads(terminal.busd("agents", "show", agent, "--json").out)
    assert shown["agent"]["clientId"] == agent


def test_logs_are_what_the_worker_wrote(talkative: Terminal, suffix: str) -> None:
    said = talkative.busd("chat", "--as", f"a{suffix}", stdin="hello\n")
    assert said == (0, "answer: hello\n", "")
    [agent] = [
        each["clientId"]
        for each in json.loads(talkative.busd("agents", "--json").out)["agents"]
        if each["chatId"] == f"a{suffix}"
    ]
    said = talkative.busd("agents", "logs", agent)
    assert (said.code, said.err) == (0, "")
    assert "said: hello" in said.out
    lines = talkative.busd("agents", "logs", agent, "--lines", "1", "--json").out.splitlines()
    assert [json.loads(line).keys() for line in lines] == [{"id", "text"}]


def test_logs_follow_until_ctrl_c(talkative: Terminal, suffix: str) -> None:
    agent = spawn(talkative, f"a{suffix}")
    command = [*BUSD, "agents", "logs", agent, "--follow"]
    with subprocess.Popen(
        command, env=talkative.environment, stdout=subprocess.PIPE, text=True
    ) as following:
        try:
            assert following.stdout is not None
            talkative.busd("chat", "--as", f"a{suffix}", stdin="one\n")
            assert "said: one" in _line_with(following, "said: one")
            talkative.busd("chat", "--as", f"a{suffix}", stdin="two\n")
            assert "said: two" in _line_with(following, "said: two")
            following.send_signal(signal.SIGINT)
            assert following.wait(PATIENCE_SECONDS) == 130
        finally:
            following.kill()


def _line_with(running: subprocess.Popen[str], words: str) -> str:
    assert running.stdout is not None
    return next(line for line in running.stdout if words in line)


def test_export_is_the_reference_s_form(terminal: Terminal, suffix: str) -> None:
    agent = spawn(terminal, f"a{suffix}")
    said = terminal.busd("agents", "export")
    assert (said.code, said.err) == (0, "")
    session = json.loads(said.out)["sessions"][agent]
    assert (session["client_id"], session["chat_id"]) == (agent, f"a{suffix}")
    short = terminal.busd("agents", "export", "--json").out
    assert json.loads(short)["sessions"][agent] == session
    assert short.count("\n") == 1


def test_a_worker_that_cannot_start_is_told(daemon_with: DaemonWith, tmp_path: Path) -> None:
    settings = {"workers.default.agent": ["/nonexistent/agent"], "workers.default.restarts": 1}
    terminal = Terminal(tmp_path, f"unix:{daemon_with(settings).path}")
    said = terminal.busd("agents", "spawn", "a")
    assert (said.code, said.out) == (1, "")
    assert "/nonexistent/agent" in said.err
    assert said.err.startswith("busd: ")
    as_json = terminal.busd("agents", "spawn", "a", "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["success"] is False


@pytest.mark.parametrize("verb", ["show", "stop", "restart", "logs"])
def test_an_agent_nobody_knows_is_told(terminal: Terminal, verb: str) -> None:
    said = terminal.busd("agents", verb, "agent:nobody")
    assert (said.code, said.out) == (1, "")
    assert said.err == "busd: no agent is called agent:nobody\n"


def test_a_bus_without_the_plugin_says_so(daemon_with: DaemonWith, tmp_path: Path) -> None:
    daemon = daemon_with({"plugins.disabled": ["bub"]})
    said = Terminal(tmp_path, f"unix:{daemon.path}").busd("agents")
    assert said.code == 1
    assert said.err == "busd: this bus has no agents; `busd plugins` says what runs on it\n"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["dance"], "No such command 'dance'"),
        (["show"], "Missing argument 'AGENT'"),
        (["ls", "--status", "happy"], "'happy' is not one of"),
        (["logs", "agent:x", "--lines", "0"], "0 is not in the range"),
        (["spawn"], "Missing argument 'CHAT_ID'"),
    ],
)
def test_a_mistake_in_typing_is_explained(
    terminal: Terminal, args: list[str], problem: str
) -> None:
    said = terminal.busd("agents", *args)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err


def test_no_bus_is_told(lonely: Terminal) -> None:
    assert lonely.busd("agents").code == 69
