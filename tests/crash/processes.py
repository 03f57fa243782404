"""Processes that start quickly: each is forked from one that has imported what it needs.

`Processes` starts `python -m tests.crash.processes`. For each line of its stdin, an `Order`, that
forks a child which runs `busd serve` or a sender or worker. The lines on its stdout are what the
children say when they are ready, and {"name": …, "ended": exit code}.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec

import busd
from tests.crash.faulty import Fault, install
from tests.crash.records import Events
from tests.daemons import PATIENCE_SECONDS

BUS = "bus"  # the name of the daemon; there is one at a time
_MODULES = ("busd.cli.serve", "busd.daemon", "busd.ops.logs", "busd.settings.config")
_ROOT = Path(busd.__file__).parent.parent
_PROCESS_CONTROL = ctypes.CDLL(None).prctl
_DIE_WITH_PARENT = 1


class Order(msgspec.Struct):
    """A process to start."""

    name: str
    module: str  # of this package; "": the daemon
    args: list[str]
    log: str  # for its stderr
    fault: Fault | None = None


class Processes:
    """All processes of a test but the one that runs it."""

    def __init__(self) -> None:
        self.events = Events()
        environment = {name: v for name, v in os.environ.items() if not name.startswith("BUSD_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.processes"],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self.events.writing],
        )
        self._buffer = b""
        self._pids: dict[str, int] = {}
        self._ready: set[str] = set()
        self.codes: dict[str, int] = {}  # exit codes; below 0: killed by that signal

    def start(self, order: Order) -> None:
        assert order.name not in self._pids
        assert self._process.stdin
        self.codes.pop(order.name, None)
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        while order.name not in self._pids:
            self._read()

    def wait_until_ready(self, name: str) -> bool:
        """Return True once it is ready, False if it has ended before."""
        while name not in self._ready and name not in self.codes:
            self._read()
        return name in self._ready

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, also to one that has just ended."""
        # Its number is not used again before we have read that it ended: then it is forgotten.
        with suppress(ProcessLookupError):
            os.kill(self._pids[name], number)

    def wait(self, name: str) -> int:
        """Return the exit code once it has ended."""
        while name not in self.codes:
            self._read()
        return self.codes[name]

    def look(self) -> None:
        """Take note of those that have ended, without waiting."""
        assert self._process.stdout
        while b"\n" in self._buffer or select.select([self._process.stdout], [], [], 0)[0]:
            self._read()

    def end(self) -> None:
        """Kill all of them."""
        for name in list(self._pids):
            self.signal(name, signal.SIGKILL)
            self.wait(name)

    def close(self) -> None:
        self._process.kill()  # the kernel kills its children
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            with suppress(BrokenPipeError):
                stream.close()
        self.events.close()

    def _read(self) -> None:
        """Wait for a line and take note of what it says."""
        said = self._next_line()
        name = said.get("name", BUS)
        if "pid" in said:
            self._pids[name] = said["pid"]
        elif "ended" in said:
            self.codes[name] = said["ended"]
            del self._pids[name]
            self._ready.discard(name)
        else:
            self._ready.add(name)

    def _next_line(self) -> Any:
        assert self._process.stdout
        stream = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            assert select.select([stream], [], [], PATIENCE_SECONDS)[0], "nothing happens"
            data = os.read(stream, 65_536)
            assert data, "the process that starts all others has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)


# In the process that starts all others, and in its children


def say(name: str, **words: int) -> None:
    """Write a line on the stdout that all of them share."""
    os.write(1, json.dumps({"name": name, **words}).encode() + b"\n")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    _PROCESS_CONTROL(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _run(order: Order, parent: int) -> NoReturn:
    """Be the process that was ordered."""
    code = 1
    try:
        die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if order.fault:
            install(order.fault)
        if order.module:
            importlib.import_module(f"tests.crash.{order.module}").main(order.args)
        else:
            from busd.cli.main import cli

            cli.main(order.args, prog_name="busd")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap(names: dict[int, str]) -> None:
    while names:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        say(names.pop(pid), ended=os.waitstatus_to_exitcode(status))


def main() -> None:
    for module in _MODULES:
        importlib.import_module(module)
    for module in ("sender", "worker", "counter", "rolling"):
        importlib.import_module(f"tests.crash.{module}")
    ended, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    names: dict[int, str] = {}
    orders = b""
    while True:
        readable, _, _ = select.select([0, ended], [], [])
        if ended in readable:
            os.read(ended, 65_536)
            _reap(names)
        if 0 not in readable:
            continue
        if not (data := os.read(0, 65_536)):
            return
        *lines, orders = (orders + data).split(b"\n")
        for line in lines:
            order = msgspec.json.decode(line, type=Order)
            parent = os.getpid()
            child = os.fork()
            if not child:
                _run(order, parent)
            names[child] = order.name
            say(order.name, pid=child)


if __name__ == "__main__":
    main()
