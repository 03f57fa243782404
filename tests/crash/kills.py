"""Senders and workers over a daemon that is killed at random moments."""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.crash.faulty import Fault
from tests.crash.forks import KILL
from tests.crash.invariants import Findings, check, count_left
from tests.crash.processes import BUS, Order, Processes
from tests.crash.sender import FINISH
from tests.daemons import PATIENCE_SECONDS, Loop, serve_args

SENDERS = {
    "app:s1": ["agent:w1", "agent:w2", "team:a"],
    "app:s2": ["agent:w1", "team:a", "team:b"],
    "app:s3": ["agent:w1"],
    "app:s4": ["agent:w2", "team:b"],
}
WORKERS = {"agent:w1": [], "agent:w2": [], "pool": ["team:*"]}
SETTINGS: dict[str, object] = {
    "mail.max_attempts": 1_000_000,
    "mail.first_retry_seconds": 0.05,
    # Attempts that a crash has interrupted count, too: the pause would get long.
    "mail.max_retry_seconds": 0.2,
}
_EARLY = 0.1  # of the kills come while the daemon starts
_CLIENT_KILLED = 0.25  # of the rounds kill a sender or a worker, too
_MAX_EVENTS = 1_000
_MAX_START_SECONDS = 0.2
_LONGEST_SECONDS = 300.0  # for what is left at the end: delivered for ever is not delivered
_LOOK_SECONDS = 0.05  # between looks at the mailboxes while nothing happens


class Scene:
    """A daemon that is started again and again, and the processes that use it."""

    def __init__(
        self, processes: Processes, folder: Path, loop: Loop, settings: dict[str, object]
    ) -> None:
        self.processes = processes
        self.events = processes.events
        self.folder = folder
        self.path = str(folder / "bus.sock")
        self.mail = folder / "state" / "mail.db"
        self.log = folder / "log"
        self.clients: list[str] = []
        self.senders: list[str] = []
        self._loop: Loop = loop
        self._settings = SETTINGS | settings

    # The daemon

    def begin(self, fault: Fault | None = None) -> None:
        """Start a daemon, and do not wait until it listens."""
        args = serve_args(self.folder, self._loop, self._settings)
        self.processes.start(Order(BUS, "", args, str(self.log), fault))

    def start(self) -> None:
        self.begin()
        assert self.processes.wait_until_ready(BUS), self.log.read_text()

    def kill(self) -> None:
        """End the daemon as a crash would."""
        self.processes.signal(BUS, signal.SIGKILL)
        code = self.processes.wait(BUS)
        assert code == -signal.SIGKILL, self.log.read_text()

    def stop(self) -> None:
        """End the daemon gracefully."""
        self.processes.signal(BUS, signal.SIGTERM)
        assert self.processes.wait(BUS) == 0, self.log.read_text()

    @property
    def faults(self) -> list[str]:
        """What any of the daemons reported as its own fault."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if '"level":"error"' in line or "Traceback" in line]

    # Senders and workers

    def add(self, module: str, name: str, *args: str) -> None:
        events = str(self.events.writing)
        words = ["--name", name, "--folder", str(self.folder), "--events", events, *args]
        self.processes.start(Order(name, module, words, str(self.folder / f"{name}.log")))
        self.clients.append(name)
        assert self.processes.wait_until_ready(name), self.failures

    def add_sender(self, name: str, receivers: list[str], *args: str) -> None:
        to = [word for each in receivers for word in ("--to", each)]
        self.add("sender", name, "--address", f"unix:{self.path}", *to, *args)
        self.senders.append(name)

    def add_worker(self, name: str, patterns: list[str], *args: str) -> None:
        words = [word for each in patterns for word in ("--pattern", each)]
        self.add("worker", name, "--path", self.path, *words, *args)

    @property
    def failures(self) -> list[str]:
        """What went wrong in senders and workers themselves."""
        self.processes.look()
        return [
            f"{name}: {(self.folder / f'{name}.log').read_text()[-500:]}"
            for name in self.clients
            if self.processes.codes.get(name)
        ]

    # What happens

    def wait(self, events: int) -> None:
        """Wait until so much has happened."""
        is_alive = self.events.wait(events)
        assert not self.failures, self.failures
        assert is_alive, f"nothing happens any more in {self.folder}"

    def wait_until_delivered(self) -> None:
        """Let the senders end and the mailboxes get empty."""
        (self.folder / FINISH).touch()
        quiet, deadline = 0.0, time.monotonic() + _LONGEST_SECONDS
        while not self._has_ended or count_left(self.folder):
            quiet = 0.0 if self.events.wait(1, _LOOK_SECONDS) else quiet + _LOOK_SECONDS
            assert not self.failures, self.failures
            is_stuck = quiet > PATIENCE_SECONDS or time.monotonic() > deadline
            assert not is_stuck, f"stuck: {check(self.folder).violations} in {self.folder}"

    @property
    def _has_ended(self) -> bool:
        self.processes.look()
        return all(name in self.processes.codes for name in self.senders)

    def finish(self) -> Findings:
        """Let everything be delivered, stop the daemon, and check it all."""
        self.wait_until_delivered()
        self.stop()
        findings = check(self.folder)
        assert not self.faults, self.faults[:5]
        assert not findings.violations, f"{findings.violations} in {self.folder}"
        return findings


@contextmanager
def open_scene(
    loop: Loop,
    settings: dict[str, object] | None = None,
    processes: Processes | None = None,
) -> Iterator[Scene]:
    """Make a scene in a new folder, which stays there if anything goes wrong."""
    folder = Path(tempfile.mkdtemp(prefix="busd-crash-"))
    with ExitStack() as opened:
        if processes is None:
            processes = Processes()
            opened.callback(processes.close)
        processes.events.discard()
        opened.callback(processes.end)
        yield Scene(processes, folder, loop, settings or {})
    shutil.rmtree(folder, ignore_errors=True)


def add_clients(scene: Scene, seed: int) -> None:
    """Start all senders and workers."""
    for name, patterns in WORKERS.items():
        scene.add_worker(name, patterns, "--seed", str(seed))
    for name, receivers in SENDERS.items():
        scene.add_sender(name, receivers)


def run_kills(loop: Loop, seed: int, kills: int, processes: Processes | None = None) -> Findings:
    """Kill the daemon so many times; return what was found in the end."""
    with open_scene(loop, processes=processes) as scene:
        add_clients(scene, seed)
        for number in range(kills):
            _kill_one(scene, random.Random(f"{seed} {number}"))
        scene.start()
        return scene.finish()


def _kill_one(scene: Scene, chance: random.Random) -> None:
    is_early, moment = chance.random() < _EARLY, chance.random()
    events, client = chance.randrange(1, _MAX_EVENTS), chance.choice([*SENDERS, *WORKERS])
    is_client_killed = chance.random() < _CLIENT_KILLED
    if is_early:
        scene.begin()
        time.sleep(moment * _MAX_START_SECONDS)  # the moment is random: there is no event to await
    else:
        scene.start()
        scene.events.discard()
        if is_client_killed:
            before = chance.randrange(events)
            scene.wait(before)
            scene.processes.signal(client, KILL)
            events -= before
        scene.wait(events)
        _spin(moment * 0.002)  # about as long as a transaction
    scene.kill()


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
