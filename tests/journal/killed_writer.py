"""Writers of an activity log that go on until they are killed.

For each line of stdin, "path run", a child is started that writes batches as fast as it can. Its
pid comes first on stdout, then a line for every batch once it is written.
"""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path

from msgspec import Raw

from busd.bus.record import Record
from busd.journal.journal import Journal
from busd.journal.settings import JournalSettings
from busd.journal.writer import JournalWriter
from tests.journal.rows import PATIENCE_SECONDS, ended, in_flight

ROWS_PER_BATCH = 300
# Small enough that it is always being tidied, too.
SETTINGS = JournalSettings(payload="head", max_bytes=2**20, head_bytes=10_000)


def text_of(message_id: str) -> str:
    """Return the payload of a message, whose length and content depend on its id."""
    return f'{{"text":"{message_id * (1 + hash_of(message_id) % 50)}"}}'


def hash_of(text: str) -> int:
    """A hash that is the same in every process."""
    return sum(position * ord(letter) for position, letter in enumerate(text, 7))


def write_forever(path: Path, run: str) -> None:
    writer = JournalWriter(path, SETTINGS)
    journal = Journal(writer, SETTINGS)
    calls = count(1)
    waiting: list[Record] = []
    for number in count(1):
        # One delivery of each batch is answered in the next.
        for record in waiting:
            journal.add(ended(record.call, record.message_id, payload=record.payload))
        for part in range(ROWS_PER_BATCH):
            message_id = f"{run}.{number}.{part}"
            payload = journal.keep(Raw(text_of(message_id).encode()))
            journal.add(ended(next(calls), message_id, payload=payload))
        waiting = [in_flight(next(calls), f"{run}.{number}.open")]
        assert writer.wait_until_written(PATIENCE_SECONDS)
        if number > 1:
            os.write(1, f"{number - 1}\n".encode())
        journal.pump(lambda call: waiting)  # noqa: B023


def main() -> None:
    for line in sys.stdin:
        path, run = line.rsplit(maxsplit=1)
        child = os.fork()
        if not child:
            os.write(1, f"{os.getpid()}\n".encode())
            write_forever(Path(path), run)
        os.waitpid(child, 0)
        os.write(1, b"killed\n")


if __name__ == "__main__":
    main()
