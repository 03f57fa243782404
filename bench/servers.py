"""The servers under test: how each is started, where it listens, how it is stopped."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.others import OTHERS, explain_missing, find_addresses, make_other_command

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 20.0
STOP_SECONDS = 10.0
# Else glibc may give memory back and take it again at every chunk of 64 KiB messages: 28 page
# faults and 40 µs per message in the relay, none in busd, by the luck of the heap's layout.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}


LOGGED = "+log"  # behind a loop's name: with the defaults of a user
UNCOUNTED = "-metrics"  # without counting and timing
SPAWNING = ("+subprocess", "+systemd")  # workers by this spawner


class ServerError(Exception):
    """A server did not start, or died."""


class Ready(msgspec.Struct):
    """The line that the relay and busd print when they listen."""

    listening: list[str]


class Server:
    """One server as a process of its own, in a scratch directory of its own."""

    def __init__(self, name: str, directory: Path | None = None) -> None:
        if missing := explain_missing(name):
            raise ServerError(missing)
        self.name = name
        self.scratch = Path(tempfile.mkdtemp(prefix="bench-", dir=directory))
        # To append: Redis opens the same file for what it logs.
        self.log = (self.scratch / "stderr").open("ab")
        self.process = subprocess.Popen(
            make_command(name, self.scratch),
            stdout=subprocess.PIPE,
            stderr=self.log,
            cwd=ROOT,
            env=os.environ | make_environment(name),
            # Ctrl-C is for the runner alone: it stops its servers in its own order.
            start_new_session=True,
        )
        try:
            self.addresses = self.await_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process whose CPU time and memory count."""
        return self.process.pid

    def address(self, transport: str) -> str:
        """Where it listens by `unix`, `tcp`, `ws` or `nats`; WebSocket shares the TCP port."""
        scheme = "tcp" if transport == "ws" else transport
        for address in self.addresses:
            if address.startswith(f"{scheme}:"):
                return address.replace("tcp:", "ws:") if transport == "ws" else address
        raise ServerError(f"{self.name} does not listen by {transport}")

    def await_ready(self) -> list[str]:
        """Wait until the server says where it listens."""
        if self.name in OTHERS:
            return self.await_addresses()
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if readable else b""
        try:
            return msgspec.json.decode(line, type=Ready).listening
        except msgspec.MsgspecError:
            raise ServerError(f"{self.name} did not start: {self.last_words()}") from None

    def await_addresses(self) -> list[str]:
        """Wait for one of the others, which print no such line."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.is_alive():
            if addresses := find_addresses(self.name, self.scratch, self.pid):
                return addresses
            time.sleep(0.02)
        raise ServerError(f"{self.name} did not start: {self.last_words()}")

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def last_words(self) -> str:
        """The last line of what the server said on stderr, and how it ended."""
        lines = (self.scratch / "stderr").read_text(errors="replace").strip().splitlines()
        code = self.process.poll()
        end = "still running" if code is None else f"exit code {code}"
        return f"{lines[-1] if lines else 'it said nothing'} ({end})"

    def stop(self) -> None:
        """End the process, by force if it must be, and remove its scratch directory."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


def make_command(name: str, scratch: Path) -> list[str]:
    """The command line that starts a server."""
    socket = f"{scratch}/bus.sock"
    if name == "relay":
        return [sys.executable, "-m", "bench.relay", socket]
    if name in OTHERS:
        return make_other_command(name, scratch)
    module = "bench.uncounted" if name.endswith(UNCOUNTED) else "busd"
    command = [sys.executable, "-m", module, "serve", "--json", "--log-level", "warning"]
    command += ["--listen", f"unix:{socket}", "--listen", "tcp://127.0.0.1:0"]
    loop, mark, spawner = name.removeprefix("busd ").removesuffix(UNCOUNTED).partition("+")
    if mark + spawner in SPAWNING:
        config = scratch / "busd.toml"
        config.write_text(f'[workers.default]\nspawner = "{spawner}"\n')
        command += ["--config", str(config)]
    return [*command, "--loop", loop, "--state", f"{scratch}/state"]


def make_environment(name: str) -> dict[str, str]:
    """What a server finds in its environment besides what everybody has."""
    if name == "relay":
        return KEEP_MEMORY
    if name.endswith((LOGGED, *SPAWNING)):
        return {}  # as users run it: access rules and the activity log on
    return {"BUSD_JOURNAL_ENABLED": "false", "BUSD_POLICY": "open"}
