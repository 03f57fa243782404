"""kill -9 under load: nothing written is damaged, torn or gone, and what was open is known."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import busd
from busd.bus.record import Record
from tests.journal.killed_writer import ROWS_PER_BATCH, text_of

KILLS = 100
ROOT = Path(busd.__file__).parent.parent


@pytest.fixture
def nursery() -> Iterator[subprocess.Popen[str]]:
    """The process that starts writers."""
    command = [sys.executable, "-m", "tests.journal.killed_writer"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, bufsize=1
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()
        assert process.wait(10) == 0


def kill_a_writer(nursery: subprocess.Popen[str], path: Path, run: int) -> int:
    """Let a writer write, kill it in the middle of it, and give the last batch it had confirmed."""
    assert nursery.stdin
    assert nursery.stdout
    nursery.stdin.write(f"{path} {run}\n")
    pid = int(nursery.stdout.readline())
    chance = random.Random(run)
    confirmed = [nursery.stdout.readline() for _ in range(chance.randrange(1, 15))]
    moment = time.perf_counter() + chance.uniform(0, 0.005)  # a batch takes about as long
    while time.perf_counter() < moment:
        pass
    os.kill(pid, signal.SIGKILL)
    confirmed += iter(nursery.stdout.readline, "killed\n")
    return int(confirmed[-1])


def read(path: Path) -> list[Record]:
    """Check the file and read all of it, leaving it as the writer left it."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        query = "SELECT value FROM block, json_each(deliveries) ORDER BY block.id, key"
        return [msgspec.json.decode(value, type=Record) for (value,) in db.execute(query)]


def check_rows(rows: list[Record]) -> None:
    """Find that no row is torn."""
    for row in rows:
        is_open = row.message_id.endswith(".open")
        assert row.payload == ('{"text":"hi"}' if is_open else text_of(row.message_id))
        assert row.sender == "tg:1"
        assert row.status == "ok" or is_open


def check_batches(rows: list[Record], run: int, confirmed: int) -> None:
    """Find everything that was confirmed, and no batch but whole ones."""
    sizes = Counter(
        int(row.message_id.split(".")[1])
        for row in rows
        if row.message_id.startswith(f"{run}.") and not row.message_id.endswith(".open")
    )
    assert confirmed <= max(sizes) <= confirmed + 2
    assert sorted(sizes) == list(range(min(sizes), max(sizes) + 1))
    del sizes[min(sizes)]  # tidying may have deleted some of the oldest
    assert set(sizes.values()) <= {ROWS_PER_BATCH}


def check_open(rows: list[Record], run: int) -> None:
    """Find that one delivery of this run is in flight, and that those of earlier runs are lost."""
    unanswered = [(row.message_id.split(".")[0], row.status) for row in rows if row.status != "ok"]
    assert unanswered.pop() == (str(run), "in flight")
    assert {status for _, status in unanswered} <= {"lost"}
    assert len({each for each, _ in unanswered}) == len(unanswered)


def test_a_writer_can_be_killed_at_any_time(nursery: subprocess.Popen[str], tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for run in range(1, KILLS + 1):
        confirmed = kill_a_writer(nursery, path, run)
        rows = read(path)
        check_rows(rows)
        check_batches(rows, run, confirmed)
        check_open(rows, run)
    assert not list(tmp_path.glob("*corrupt*"))
