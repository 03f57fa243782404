"""kill -9 at random moments: no mail that was confirmed is lost, none that was settled returns.

`python -m tests.mail.crash --rounds 200 --seed 1` runs it for longer than the tests do. A killed
process leaves its writes to the kernel, so this says nothing about a loss of power.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import busd
from busd.bus.mail import Mail
from busd.bus.mail_store import Claim, DropDead, Keep, ListDead, Read, Release
from tests.mail.killed_store import mail_named
from tests.mail.stores import do
from tests.mail.waiting import Waiting

ROOT = Path(busd.__file__).parent.parent
Events = dict[str, set[str]]  # "? keep", "! keep", "? settle", … -> names


class Rounds:
    """What has to be in the file after all rounds so far."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.mail: set[str] = set()
        self.ended: set[str] = set()  # settled or buried
        self.confirmed = 0
        self.unconfirmed = 0
        self._seed = seed
        self._last_id = 0

    def run(self, rounds: int) -> None:
        command = [sys.executable, "-m", "tests.mail.killed_store"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, bufsize=1
        ) as nursery:
            for number in range(rounds):
                self._check(self._kill_one(nursery, f"{self._seed}.{number}"))
            assert nursery.stdin
            nursery.stdin.close()
            assert nursery.wait(10) == 0

    def _kill_one(self, nursery: subprocess.Popen[str], run: str) -> Events:
        """Let a store be used, kill it in the middle of it, and return what it said."""
        assert nursery.stdin
        assert nursery.stdout
        nursery.stdin.write(f"{self.path} {run}\n")
        pid = int(nursery.stdout.readline())
        chance = random.Random(run)
        lines = [nursery.stdout.readline() for _ in range(chance.randrange(1, 600))]
        moment = time.perf_counter() + chance.uniform(0, 0.002)  # a batch takes about as long
        while time.perf_counter() < moment:
            pass
        os.kill(pid, signal.SIGKILL)
        lines += iter(nursery.stdout.readline, "killed\n")
        events: Events = {}
        for line in lines:
            mark, what, name = line.split()
            events.setdefault(f"{mark} {what}", set()).add(name)
        return events

    def _check(self, events: Events) -> None:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        subject = Waiting(self.path)
        box = do(subject, Claim("agent:a", "parent"))
        found = do(subject, Read(box, limit=10**6, max_bytes=10**9))
        dead = do(subject, ListDead(limit=10**6, max_bytes=10**9))
        self._compare(events, found, [letter.mail for letter in dead])
        totals = subject.store.totals
        sizes = [sum(len(each.payload) for each in found), len(found), len(dead)]
        assert sizes == [totals.bytes, totals.count, totals.dead]
        self._send_again(subject, events, {str(each.message_id) for each in found})
        do(subject, DropDead())
        do(subject, Release(box))
        subject.close()
        assert not list(self.path.parent.glob("*corrupt*"))

    def _compare(self, events: Events, found: list[Mail], dead: list[Mail]) -> None:
        names, dead_names = [[str(each.message_id) for each in some] for some in (found, dead)]
        assert len(set(names + dead_names)) == len(names) + len(dead_names)
        tried, confirmed = events.get("? keep", set()), events.get("! keep", set())
        ending = events.get("? settle", set()) | events.get("? bury", set())
        buried, settled = events.get("! bury", set()), events.get("! settle", set())
        assert (self.mail | confirmed) - ending <= set(names) <= (self.mail | tried)
        assert not set(names) & (buried | settled | self.ended)
        assert buried <= set(dead_names) <= events.get("? bury", set())
        new_ids = [each.id for each in found if each.message_id not in self.mail]
        assert all(number > self._last_id for number in new_ids)
        for each in found:
            assert each.payload == mail_named(str(each.message_id)).payload
        self.mail, self.ended = set(names), self.ended | ending - set(names)
        self._last_id = max([self._last_id, *(each.id for each in found)])
        self.confirmed += len(confirmed)
        self.unconfirmed += len(tried - confirmed)

    def _send_again(self, subject: Waiting, events: Events, names: set[str]) -> None:
        """Find that a sender without an answer may send again, and there is one mail."""
        for name in events.get("? keep", set()) - events.get("! keep", set()):
            if mail_named(name).idempotency_key:
                kept = do(subject, Keep(mail_named(name)))
                assert kept.is_new == (name not in names)
                self.mail.add(name)
        for name in events.get("! settle", set()):
            if mail_named(name).idempotency_key:
                kept = do(subject, Keep(mail_named(name)))
                assert (kept.is_new, kept.outcome) == (False, b"done")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = Rounds(Path(folder) / "mail.db", options.seed)
        rounds.run(options.rounds)
    print(f"{options.rounds} kills, {rounds.confirmed} kept, {rounds.unconfirmed} unconfirmed")


if __name__ == "__main__":
    main()
