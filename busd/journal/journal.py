"""The event loop's side of the activity log: a list of finished deliveries.

Nothing here waits or touches a file. `add` is the list's own `append`; every `write_seconds` the
daemon calls `pump`, which hands the list to the writer thread (`writer`) unless that is still
busy with the previous one. If the writer cannot keep up, records are dropped and counted:
the log never delays a message.

Only `sendMessage` is logged, so the tokens of `initialize` never reach the file, and acks are
logged by their outcome alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import structlog
from msgspec import Raw

from busd.bus.record import Record
from busd.journal.blocks import RecordBatch
from busd.journal.settings import JournalSettings
from busd.journal.writer import JournalWriter

log = structlog.get_logger("busd.journal")

# Open deliveries recorded per pump: 10,000 take the loop about 5 ms.
MAX_OPEN_RECORDS = 10_000
OpenSince = Callable[[int], Iterable[Record]]


@contextmanager
def open_journal(
    path: Path, settings: JournalSettings, close_seconds: float = 5.0
) -> Iterator[Journal]:
    """Open the log and start its writer; raise ConfigError if that is not possible."""
    journal = Journal(JournalWriter(path, settings), settings)
    try:
        yield journal
    finally:
        journal.close(close_seconds)


class Journal:
    """Collects records on the event loop; a `busd.bus.record.Recorder`."""

    def __init__(self, writer: JournalWriter, settings: JournalSettings) -> None:
        self.writer = writer
        self.wall_offset = 0.0  # the time of day minus the clock of the bus
        self._records: list[Record] = []
        self.add = self._records.append
        self._lost: list[tuple[int, str]] = []
        self._dropped = 0
        self._last_open_call = 0
        self._payload_bytes = 0
        self._is_overflowing = False
        self.change(settings)

    def change(self, settings: JournalSettings) -> None:
        """Apply new settings; `enabled` and `write_seconds` are the daemon's to apply."""
        self.settings = settings
        self.writer.settings = settings
        self.keeps_payloads = settings.payload != "off"

    def keep(self, payload: Raw) -> str:
        """Return the part of a payload that is to be logged, as text of its own."""
        settings = self.settings
        if settings.payload == "off":
            return ""
        size = memoryview(payload).nbytes
        has_room = self._payload_bytes + size <= settings.max_backlog_bytes
        if size <= settings.head_bytes or (settings.payload == "full" and has_room):
            text = str(payload, "utf-8", "replace")
        else:
            text = cut_payload(payload, settings.head_bytes)
        self._payload_bytes += text.__sizeof__()
        return text

    def pump(self, open_since: OpenSince) -> None:
        """Pass what has been collected to the writer, if it is free.

        `open_since(call)` returns a record, 'in flight', for each delivery that is open now and
        has a later call than `call`: each is requested once and shown until it ends.
        """
        if self.writer.is_busy:
            self._trim()
            return
        records = self._records
        if len(records) * 2 < self.settings.max_backlog_rows:
            self._is_overflowing = False  # the next overflow is worth a warning again
        in_flight = list(islice(open_since(self._last_open_call), MAX_OPEN_RECORDS))
        if in_flight:
            self._last_open_call = max(record.call for record in in_flight)
        if records or in_flight or self._lost:
            self.writer.write(RecordBatch(records.copy(), self.wall_offset, in_flight, self._lost))
            self._release(records)
            records.clear()
            self._lost = []

    def close(self, seconds: float = 5.0) -> None:
        """Write what is left, then stop the writer; give up after `seconds`."""
        if self.writer.wait_until_written(seconds / 2):
            self.pump(lambda _: ())
        self.writer.close(seconds / 2)
        if self._records:
            self._dropped += len(self._records)
            log.warning("journal.abandoned", rows=len(self._records))
            self._records.clear()

    @property
    def dropped(self) -> int:
        """The number of deliveries that were not logged since the start."""
        return self._dropped + self.writer.dropped

    @property
    def backlog_rows(self) -> int:
        """The number of deliveries that wait to be written."""
        return len(self._records) + self.writer.backlog_rows

    def _trim(self) -> None:
        """Drop the newest records over the limit."""
        excess = min(self.backlog_rows - self.settings.max_backlog_rows, len(self._records))
        if excess <= 0:
            return
        dropped = self._records[-excess:]
        del self._records[-excess:]
        # Later ones were never written as in flight.
        last = self._last_open_call
        self._lost += [(record.call, record.peer) for record in dropped if record.call <= last]
        self._release(dropped)
        self._dropped += excess
        if not self._is_overflowing:
            self._is_overflowing = True
            log.warning("journal.overflowed", dropped=self.dropped, backlog=self.backlog_rows)

    def _release(self, records: list[Record]) -> None:
        """Stop counting the payloads of records that leave the list."""
        if self._payload_bytes:
            sizes = (record.payload.__sizeof__() for record in records if record.payload)
            self._payload_bytes -= sum(sizes)


def cut_payload(payload: Raw, head_bytes: int) -> str:
    """Return the head of a payload, cut between two characters, and the size of the whole."""
    whole = memoryview(payload)
    head = str(whole[:head_bytes], "utf-8", "ignore")
    return f"{head}… ({whole.nbytes} bytes)"
