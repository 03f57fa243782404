"""Every sample runs as it stands, and Ctrl-C ends it without a word."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from busd import SyncClient
from tests.cli.terminal import Running, Terminal
from tests.daemons import PATIENCE_SECONDS, open_daemon
from tests.pages import DOCS, README, samples_of, section, text_of

BLOCKS = [
    (page, text) for page in (README, *DOCS) for _, text in samples_of(text_of(page), "python")
]
# Plugins and their settings are read by the bus, a test needs none; they have tests of their own.
ELSEWHERE = (
    *("docs/bridge-kit.md", "docs/plugins.md", "docs/testing.md", "docs/gateway.md"),
    *("docs/dialects/tkr.md", "docs/bridges/hook.md"),
)
AGENTS = [(page, text) for page, text in BLOCKS if page not in ELSEWHERE]
# What `nc -N -U PATH` does, where there is none.
NETCAT = """
import socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[-1])
line.sendall(sys.stdin.buffer.read())
line.shutdown(socket.SHUT_WR)
while chunk := line.recv(65536):
    sys.stdout.buffer.write(chunk)
"""


def start(terminal: Terminal, text: str, *args: str) -> Running:
    program = terminal.folder / "sample.py"
    program.write_text(text)
    return terminal.start_any([sys.executable, str(program), *args])


def wait_for(name: str, peer: SyncClient) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while name not in [each["clientId"] for each in peer.status()["connections"]]:
        assert time.monotonic() < end, f"{name} did not come"


def test_there_are_samples_of_agents() -> None:
    pages = [page for page, _ in AGENTS]
    assert pages == ["README.md"] * 2 + ["docs/agents.md", "docs/delivery.md", "docs/worker-kit.md"]


@pytest.mark.parametrize("number", range(len(AGENTS)))
def test_a_sample_is_on_the_bus_until_ctrl_c_which_prints_nothing(
    tmp_path: Path, number: int
) -> None:
    text = AGENTS[number][1]
    named = re.search(r"Client\(\"(.*?)\"", text)
    name = named[1] if named else "agent:sample"
    with (
        open_daemon("uvloop") as daemon,
        SyncClient("watcher", address=f"unix:{daemon.path}") as watcher,
        start(Terminal(tmp_path, f"unix:{daemon.path}"), text, "--client-id", name) as running,
    ):
        wait_for(name, watcher)
        assert running.interrupt() == (0, "", "")


@pytest.mark.parametrize("number", range(len(AGENTS)))
def test_a_sample_without_a_bus_says_so_in_one_line(tmp_path: Path, number: int) -> None:
    with start(Terminal(tmp_path), AGENTS[number][1]) as running:
        said = running.end()
    where = f"unix:{tmp_path}/busd/bus.sock"
    assert said == (1, "", f'busd: no bus at {where}; start one with "busd serve"\n')


def test_the_waiter_takes_an_order(tmp_path: Path) -> None:
    [waiter] = [text for _, text in AGENTS if "agent:waiter" in text]
    with (
        open_daemon("uvloop") as daemon,
        SyncClient("table:1", address=f"unix:{daemon.path}") as guest,
        start(Terminal(tmp_path, f"unix:{daemon.path}"), waiter),
    ):
        wait_for("agent:waiter", guest)
        [ack] = guest.send("agent:waiter", {"type": "order", "pizza": "funghi"}).acks
        assert ack.success, ack
        assert ack.read() == {"type": "ordered", "cooks": 0}
        [ack] = guest.send("agent:waiter", {"type": "order", "pizza": "x", "count": 11}).acks
        assert (ack.success, ack.message, ack.retry_seconds) == (False, "too many", 60)


def test_what_is_spoken_by_hand_is_answered_also_without_a_runtime_folder(tmp_path: Path) -> None:
    by_hand = section("docs/protocol.md", "Speak it by hand")
    json, shell = (text for _, text in samples_of(by_hand, "json", "sh")[:2])
    assert "XDG" not in shell
    (tmp_path / "requests.jsonl").write_text(json)
    tools = tmp_path / "bin"
    tools.mkdir()
    if shutil.which("nc") is None:
        write_program(tools / "nc", f"exec {sys.executable} -c '{NETCAT}' \"$@\"")
    write_program(tools / "busd", f'exec {sys.executable} -m busd "$@"')
    with open_daemon("uvloop") as daemon:
        terminal = Terminal(tmp_path, f"unix:{daemon.path}")
        del terminal.environment["XDG_RUNTIME_DIR"]
        path = f"{tools}:{os.environ['PATH']}"
        said = terminal.run(["sh", "-c", shell.replace(".venv/bin/busd", "busd")], PATH=path)
    assert (said.code, said.err) == (0, "")
    assert re.findall(r'"id":(\d)', said.out) == ["1", "2"]
    assert '"undelivered":"no route"' in said.out  # nobody is agent:bob


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_somebody_elses_socket_is_not_called_no_bus(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0)
        command = [sys.executable, "-m", "busd", "status", "--address", f"unix:{path}"]
        said = Terminal(tmp_path).run([*without_power(), *command])
    assert (said.code, said.out) == (77, "")
    assert said.err.startswith(f"busd: not allowed to connect to unix:{path}: Permission denied; ")


def without_power() -> list[str]:
    """Return what runs a command that may not connect to everything, though root starts it."""
    if os.geteuid() != 0:
        return []
    words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    if shutil.which("setpriv") and not subprocess.run([*words, "true"], check=False).returncode:
        return words
    pytest.skip("root cannot be without power here")
