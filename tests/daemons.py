"""Real daemons for the tests: started as processes of their own, watched, and stopped again."""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from weakref import WeakSet

import busd

Loop = Literal["uvloop", "asyncio", "trio"]
Settings = Mapping[str, object]

# Long enough for a busy machine; shorter than the 60 s after which the bus itself gives up.
PATIENCE_SECONDS = 30.0
_ROOT = Path(busd.__file__).parent.parent
_PROCESS_CONTROL = ctypes.CDLL(None).prctl
_DIE_WITH_PARENT = 1


class Daemon:
    """A running `busd serve`."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.folder = folder
        self.is_blamed = False  # a test has failed for its faults already
        self.visitors: WeakSet[socket.socket] = WeakSet()  # the connections of tests
        self._watch(process)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        where, tcp, *more = json.loads(self._first_line())["listening"]
        self.more_ports = [int(address.rsplit(":", 1)[1]) for address in more]
        self.path = where.removeprefix("unix:")
        self.port = int(tcp.rsplit(":", 1)[1])

    def start_again(
        self,
        loop: Loop,
        settings: Settings | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        """Start it in the same place, after it has ended."""
        self.close()
        self._watch(start_busd(serve_args(self.folder, loop, settings), self.folder, before))

    def _first_line(self) -> bytes:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"busd did not start: {self.log()}")
        return line

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def faults(self) -> list[str]:
        """Return the lines of the log that say that busd itself was at fault."""
        events = [line for line in self.log().splitlines() if line]
        return [line for line in events if '"level":"error"' in line or "Traceback" in line]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Return the exit code once the daemon has ended."""
        return self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()

    # What the kernel says of it

    def forget_peak(self) -> None:
        """Start measuring the peak of its memory anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """Return the most memory it held at once since the peak was last forgotten."""
        return self._status("VmHWM") * 1024

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise KeyError(name)


@contextmanager
def open_daemon(
    loop: Loop,
    settings: Settings | None = None,
    before: Callable[[], None] | None = None,
    folder: Path | None = None,
    log_level: str = "warning",
    listen: tuple[str, ...] = (),
) -> Iterator[Daemon]:
    """Run a daemon with a folder of its own; at the end it stops, in peace and without faults.

    `before` runs in the new process before the daemon does: resource limits are set there.
    """
    folder = folder or Path(tempfile.mkdtemp(prefix="busd-test-"))
    try:
        args = serve_args(folder, loop, settings, log_level, listen)
        daemon = Daemon(start_busd(args, folder, before), folder)
        try:
            yield daemon
        finally:
            for visitor in list(daemon.visitors):
                visitor.close()  # a bus that stops waits a while for those who stay
            code = daemon.stop()
            daemon.close()
        if not daemon.is_blamed:
            assert not daemon.faults(), daemon.log()
            assert code == 0, daemon.log()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve_args(
    folder: Path,
    loop: Loop = "uvloop",
    settings: Settings | None = None,
    log_level: str = "warning",
    listen: tuple[str, ...] = (),
) -> list[str]:
    """Return the command line of a daemon that keeps everything in `folder`."""
    args = ["serve", "--json", "--loop", loop, "--state", str(folder / "state")]
    args += ["--listen", f"unix:{folder / 'bus.sock'}", "--listen", "tcp://127.0.0.1:0"]
    args += [word for address in listen for word in ("--listen", address)]
    args += ["--log-level", log_level]
    # As existing peers know it; access has tests of its own.
    settings = {"policy": "open", **(settings or {})}
    config = folder / "busd.toml"
    # A dotted key is a key of its own in TOML: no need for sections.
    config.write_text("".join(f"{key} = {json.dumps(v)}\n" for key, v in settings.items()))
    return [*args, "--config", str(config)]


def start_busd(
    args: list[str], folder: Path, before: Callable[[], None] | None = None
) -> subprocess.Popen[bytes]:
    """Start the command line; what it says on stderr goes to `folder/log`."""

    def prepare() -> None:
        _PROCESS_CONTROL(_DIE_WITH_PARENT, signal.SIGKILL)  # when a test run is killed
        if before:
            before()

    environment = {name: v for name, v in os.environ.items() if not name.startswith("BUSD_")}
    environment["PYTHONPATH"] = str(_ROOT)
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "busd", *args],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=prepare,
        )


def run_busd(args: list[str], folder: Path) -> tuple[int, str]:
    """Run the command line to its end; give its exit code and what it said on stderr."""
    process = start_busd(args, folder)
    try:
        process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    return process.returncode, (folder / "log").read_text()
