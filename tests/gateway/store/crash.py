"""kill -9 at random moments: what was reported as kept is there, in order, and no number twice.

`python -m tests.gateway.store.crash --rounds 200 --seed 1` runs it for longer than the tests do. A
killed process leaves its writes to the kernel, so this says nothing about a loss of power.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import busd
from busd.gateway.store_limits import StoreLimits
from tests.gateway.store.killed_store import MAX_ENTRIES, SESSIONS, text_of
from tests.gateway.store.opened import Opened

ROOT = Path(busd.__file__).parent.parent


class Rounds:
    """What has to be in the file after all rounds so far."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.confirmed = 0
        self.unconfirmed = 0
        # By session id: the names of numbers that were reported or found.
        self._names: dict[str, dict[int, str]] = defaultdict(dict)
        self._tried: set[str] = set()
        self._seed = seed

    def run(self, rounds: int) -> None:
        command = [sys.executable, "-m", "tests.gateway.store.killed_store"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, bufsize=1
        ) as nursery:
            for number in range(rounds):
                self._check(self._kill_one(nursery, f"{self._seed}.{number}"))
            assert nursery.stdin
            nursery.stdin.close()
            assert nursery.wait(10) == 0

    def _kill_one(self, nursery: subprocess.Popen[str], run: str) -> list[str]:
        """Let a store be used, kill it in the middle of it, and return what it said."""
        assert nursery.stdin
        assert nursery.stdout
        nursery.stdin.write(f"{self.path} {run}\n")
        pid = int(nursery.stdout.readline())
        chance = random.Random(run)
        lines = [nursery.stdout.readline() for _ in range(chance.randrange(1, 600))]
        moment = time.perf_counter() + chance.uniform(0, 0.003)  # a batch takes about as long
        while time.perf_counter() < moment:
            pass
        os.kill(pid, signal.SIGKILL)
        return lines + list(iter(nursery.stdout.readline, "killed\n"))

    def _check(self, lines: list[str]) -> None:
        tried, reported = set[str](), dict[str, int]()
        for line in lines:
            mark, name, *kept = line.split()
            if mark == "?":
                tried.add(name)
            else:
                reported[name] = int(kept[0])
        self._tried |= tried
        for name, number in reported.items():
            names = self._names[name.partition(".")[0]]
            assert number not in names, f"{number} is the number of {names[number]} and {name}"
            names[number] = name
        store = Opened(self.path, StoreLimits(entries=MAX_ENTRIES))
        assert store.select("PRAGMA integrity_check") == [("ok",)]
        for session in SESSIONS:
            self._check_session(store, session.session_id)
        store.close()
        assert not list(self.path.parent.glob("*corrupt*"))
        self.confirmed += len(reported)
        self.unconfirmed += len(tried - reported.keys())

    def _check_session(self, store: Opened, session_id: str) -> None:
        if not store.calls.find_session(session_id):
            assert not self._names[session_id]  # killed before it was created
            return
        page = store.calls.page(session_id, last=10**6)
        numbers = [each.number for each in page.entries]
        names = self._names[session_id]
        assert len(numbers) <= MAX_ENTRIES
        # Without a gap, except for what is older: so all that was reported is there.
        assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else not names
        assert max(names, default=0) <= max(numbers, default=0)
        for each in page.entries:
            assert names.setdefault(each.number, each.id) == each.id
            assert each.id in self._tried
            assert each.text == text_of(each.id)
        unsent = store.calls.outbox(session_id)
        for message in unsent:  # one transaction: there is none without its entry
            assert names[int(message.message_id.rpartition(".")[2])] == message.payload.decode()
        newest = [number for number in numbers if number % 2][-len(unsent) :]
        sent = [int(each.message_id.rpartition(".")[2]) for each in unsent]
        assert sent[-len(newest) :] == newest


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = Rounds(Path(folder) / "gateway.db", options.seed)
        rounds.run(options.rounds)
    print(f"{options.rounds} kills, {rounds.confirmed} kept, {rounds.unconfirmed} unconfirmed")


if __name__ == "__main__":
    main()
