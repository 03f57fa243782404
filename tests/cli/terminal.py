"""A terminal for the tests: commands are run as processes, in an environment of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

import busd
from tests.daemons import PATIENCE_SECONDS

ROOT = Path(busd.__file__).parent.parent
BUSD = [sys.executable, "-W", "error", "-m", "busd"]


class Said(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


class Terminal:
    """Runs commands; `folder` is the home of the one who types, `address` is $BUSD_ADDRESS."""

    def __init__(self, folder: Path, address: str = "") -> None:
        self.folder = folder
        self.environment = {
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        if address:
            self.environment["BUSD_ADDRESS"] = address

    def busd(self, *args: str, stdin: str | bytes = "", **environment: str) -> Said:
        """Run `busd` to its end."""
        return self.run([*BUSD, *args], stdin, **environment)

    def run(self, command: list[str], stdin: str | bytes = "", **environment: str) -> Said:
        done = subprocess.run(
            command,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env=self.environment | environment,
            cwd=self.folder,
            timeout=PATIENCE_SECONDS,
        )
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str) -> Running:
        """Start `busd`, to be used in a `with`; at its end it is killed if it still runs."""
        return self.start_any([*BUSD, *args])

    def start_any(self, command: list[str]) -> Running:
        return Running(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment,
                cwd=self.folder,
                text=True,
            )
        )


class Running:
    """A command that was started and goes on running."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        # Whatever waits for its words hears the end of the stream instead of waiting forever.
        self._watchdog = threading.Timer(PATIENCE_SECONDS, process.kill)
        self._watchdog.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watchdog.cancel()
        self._watchdog.join()
        self.process.kill()
        self.process.wait()
        self.stdout.close()
        self.stderr.close()

    @property
    def stdout(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def stderr(self) -> IO[str]:
        assert self.process.stderr is not None
        return self.process.stderr

    def interrupt(self) -> Said:
        """Press Ctrl-C and wait for the end."""
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def end(self) -> Said:
        """Wait for the end; give what was not read before."""
        out, err = self.stdout.read(), self.stderr.read()
        return Said(self.process.wait(PATIENCE_SECONDS), out, err)
