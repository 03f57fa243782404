"""What the activity log costs: CPU on the loop and in the writer thread, bytes on disk.

    python -m tests.journal.measure [rows] [rows per batch]

Run it on a quiet machine. Messages have a payload of 200 bytes and ids as the bus makes them.
"""

from __future__ import annotations

import sys
import tempfile
import time
import uuid
from pathlib import Path

from ulid import ULID

from busd.bus.record import Record, Status
from busd.journal.journal import Journal
from busd.journal.settings import JournalSettings
from busd.journal.writer import JournalWriter
from tests.journal.rows import PATIENCE_SECONDS

SETTINGS = JournalSettings(payload="head")
PAYLOAD_BYTES = 200
PAYLOAD = '{"text":"' + "x" * (PAYLOAD_BYTES - 11) + '"}'


class Measured(JournalWriter):
    """A writer that knows what its thread has used."""

    cpu_seconds = 0.0

    def _run(self) -> None:
        super()._run()
        self.cpu_seconds = time.thread_time()


def row(call: int, message_id: str, status: Status) -> Record:
    """Make a record as the bus does."""
    start = 1_760_000_000.5 + call * 1e-5
    ended = None if status == "in flight" else start + 0.0003
    names = "tg:123456", "agent:worker-7", "agent:worker-7"
    return Record(call, message_id, call, *names, start, ended, status, payload=PAYLOAD)


def measure(
    what: str, ids: list[str], per_batch: int, *, status: Status = "ok", waiting: int = 0
) -> None:
    """Log a message for each id; `waiting` of them are in flight at a pump and end by the next."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        writer = Measured(path, SETTINGS)
        journal = Journal(writer, SETTINGS)
        add, calls = journal.add, 0
        adding = pumping = 0.0
        opened: list[Record] = []
        for first in range(0, len(ids), per_batch):
            rows = [row(calls + n, ids[first + n], status) for n in range(per_batch)]
            rows[: len(opened)] = [row(each.call, each.message_id, "ok") for each in opened]
            calls += per_batch
            opened = [row(calls + n, f"open-{calls + n}", "in flight") for n in range(waiting)]
            calls += waiting
            start = time.thread_time()
            for each in rows:
                add(each)
            added = time.thread_time()
            journal.pump(lambda _: opened)  # noqa: B023
            pumping += time.thread_time() - added
            adding += added - start
            assert writer.wait_until_written(PATIENCE_SECONDS)
        journal.close(PATIENCE_SECONDS)
        size = path.stat().st_size / len(ids) - PAYLOAD_BYTES
        per_row = 1e6 / len(ids)
        print(
            f"{what:<34}{adding * per_row:>7.3f}{pumping * per_row:>8.3f}"
            f"{writer.cpu_seconds * per_row:>8.2f}{size:>9.0f}"
        )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    per_batch = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    count -= count % per_batch
    growing = [f"msg_{ULID()}" for _ in range(count)]
    print(f"µs per row, {per_batch} rows per batch     add    pump  writer   B/row without payload")
    measure("answered well", growing, per_batch)
    measure("failed", growing, per_batch, status="failed")
    measure("… and 64 in flight at each pump", growing, per_batch, waiting=64)
    measure("ids that are random", [str(uuid.uuid4()) for _ in range(count)], per_batch)
    short = [f"m{number:08d}" for number in range(count)]
    measure("ids that are short", short, per_batch)


if __name__ == "__main__":
    main()
