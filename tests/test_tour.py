"""The README's tour, typed by a machine: every block is run, every answer compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemons import PATIENCE_SECONDS
from tests.pages import README, ROOT, samples_of, section

BIN = Path(sys.executable).parent


class Terminal:
    """A program that was started and goes on running."""

    def __init__(self, command: str, env: dict[str, str], cwd: Path) -> None:
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            env=env,
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A shell in the background has it ignored, and whatever it starts inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def read_until(self, words: str) -> str:
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            if words in line:
                return text
        raise AssertionError(f"ended without saying {words!r}:\n{text}")

    def stop(self) -> int:
        """Press Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(PATIENCE_SECONDS)

    def rest(self) -> str:
        """Return what it has said to its end and nobody has read."""
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def close(self) -> None:
        """Leave nothing behind, however the test went."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user of this machine who has nothing yet."""
    mine = {
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "BUSD_GATEWAY_LISTEN": "127.0.0.1:0",
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    strange = ("BUSD_ADDRESS", "BUB_BUS_URL", "RUNTIME_DIRECTORY", "STATE_DIRECTORY")
    return {name: value for name, value in os.environ.items() if name not in strange} | mine


def blocks() -> Iterator[tuple[str, str, str]]:
    """Return each block of the tour: its language, its terminal (if it has one), its text."""
    tour = section(README, "A two-minute tour")
    for language, text in samples_of(tour, "sh", "python", "text"):
        terminal = re.match(r"# (terminal \d)\n", text)
        yield language, terminal[1] if terminal else "", text[terminal.end() if terminal else 0 :]


def typed(command: str) -> str:
    """Use the busd under test and free ports; the rest is as the README has it."""
    listen = "--listen unix:$XDG_RUNTIME_DIR/busd/bus.sock --listen tcp://127.0.0.1:0"
    meant = {
        "make run": f"{sys.executable} -m busd serve --gateway {listen}",
        ".venv/bin/busd": f"{sys.executable} -m busd",
        ".venv/bin/python": sys.executable,
    }
    return re.sub("|".join(map(re.escape, meant)), lambda found: meant[found[0]], command.strip())


def as_pattern(expected: str) -> str:
    """Return the expression of an answer in which … stands for anything that differs each time."""
    lines = (re.escape(line).replace("…", r"\S+") for line in expected.strip().splitlines())
    return "\n".join(re.sub(r"(\\ )+", r" +", line) for line in lines)


READY = {"terminal 1": "Ctrl-C stops it", "terminal 2": "listening as agent:bob"}
PEERS = {"terminal 1": "busd gateway", "terminal 4": "agent:echo"}


def test_the_tour_goes_as_the_readme_says(env: dict[str, str], tmp_path: Path) -> None:
    said = ""
    compared = 0
    with ExitStack() as stack:
        terminals: list[Terminal] = []
        for language, terminal, text in blocks():
            if language == "python":
                (tmp_path / "echo.py").write_text(text)
            elif language == "text":
                assert re.fullmatch(as_pattern(text), said.strip()), said
                compared += 1
            elif terminal == "terminal 3":
                said = run(typed(text), env, tmp_path)
            else:
                started = Terminal(typed(text), env, tmp_path)
                stack.callback(started.close)
                terminals.append(started)
                if terminal in READY:
                    started.read_until(READY[terminal])
                if terminal in PEERS:
                    wait_for_peer(PEERS[terminal], env, tmp_path)
        assert compared == 5
        bus, listener, agent = terminals
        assert agent.stop() == 0  # Ctrl-C ends an agent in peace, too
        assert agent.rest() == ""
        assert bus.stop() == 0  # Ctrl-C drains and stops the bus cleanly
        listener.stop()


def run(command: str, env: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        env=env,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.stdout


def wait_for_peer(name: str, env: dict[str, str], cwd: Path) -> None:
    """Ask the bus who is there until somebody is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while name not in (said := run(typed(".venv/bin/busd status"), env, cwd)):
        assert time.monotonic() < deadline, said
