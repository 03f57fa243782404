"""The activity log as the bus sees it: a list of finished deliveries, handed over in one piece.

Nothing here waits or touches a file. `add` is the list's own `append`; every `write_seconds` the
daemon calls `pump`, which gives the list to the writer thread (`journal_store`) unless that is
still busy with the one before. If the writer cannot keep up, rows are dropped and counted:
the log never holds a message up.

What is not in here cannot leak: only `sendMessage` is logged, so the tokens of `initialize`
never reach the payload column, and acks are logged by their outcome alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Literal, cast

import msgspec
import structlog
from msgspec import Raw

from busd.rpc.envelope import RequestId

if TYPE_CHECKING:
    from busd.bus.journal_store import JournalStore

log = structlog.get_logger("busd.journal")

# So many open deliveries are noted per pump: 10,000 take the loop about 5 ms.
MAX_OPEN_ROWS = 10_000
MAX_ERROR_CHARACTERS = 1_000

# 'in flight': not answered yet. 'lost': nobody will know any more how it went, because the daemon
# was killed, or because its outcome was dropped.
Status = Literal["ok", "failed", "no route", "kept", "in flight", "lost"]

# One delivery: a message on its way to one addressee. A tuple, because one is made per delivery:
# 0.1 µs. Times are seconds since 1970, 0.0 for what has not happened.
Row = tuple[
    int,  # call: the number of the sendMessage, growing; the same for all its addressees
    str,  # message id
    RequestId,  # the sender's own id of its request
    str,  # sender
    str,  # the address it was sent to
    str,  # the addressee's clientId; "" if there is none
    int,  # 1 in one row per message, which shows `send_start` and has the payload; else 0
    float,  # send_start: the bus has accepted it
    float,  # process_start: handed over to the addressee
    float,  # process_finish: the addressee's answer is in
    float,  # send_finish: the sender has its answer; only in the row of the last addressee
    Status,
    str,  # what went wrong, up to MAX_ERROR_CHARACTERS of it; "" if nothing did
    Raw | str,  # what `Journal.keep` made of the payload; "" where it is not the first row
]
# Who sent it, to which address, and to whom that led.
Way = tuple[str, str, str]
# What most deliveries come to: one addressee, an ack that is a success, no payload kept. Its values
# stand one after the other in one flat list, ready to be bound: call, message id, request id, way,
# send_start, send_finish (on the bus's own clock). No tuple is kept, unpacked or thrown away for
# it: 0.6 µs less than a Row costs by the time it is written.
PLAIN_WIDTH = 6
Plain = tuple[int, str, RequestId, Way, float, float]
MAX_WAYS = 10_000  # remembered
OpenSince = Callable[[int], Iterable[Row]]


class JournalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the activity log keeps, how much of it, and for how long."""

    enabled: bool = True
    payload: Literal["full", "head", "off"] = "off"  # what people write is theirs
    head_bytes: int = 512
    keep_days: float = 30.0
    max_bytes: int = 1024 * 1024 * 1024  # of the database file
    max_backlog_rows: int = 100_000  # waiting to be written
    max_backlog_bytes: int = 64 * 1024 * 1024  # of payloads over head_bytes, if payload is full
    write_seconds: float = 0.1


class Batch(msgspec.Struct, eq=False):
    """What the writer gets at once and writes in one transaction."""

    plain: list[object]  # PLAIN_WIDTH values each
    wall_offset: float  # added to the times in there it gives the time of day
    rows: list[Row]
    open_rows: list[Row]
    lost: list[tuple[int, str]]  # call and addressee of what ended, but was dropped

    @property
    def ended(self) -> int:
        """How many deliveries have come to their end in it."""
        return len(self.plain) // PLAIN_WIDTH + len(self.rows)


class Journal:
    """Collects rows on the loop's side."""

    def __init__(self, store: JournalStore, settings: JournalSettings) -> None:
        self.store = store
        self._plain: list[object] = []
        self._rows: list[Row] = []
        self._lost: list[tuple[int, str]] = []
        self.ways: dict[Way, Way] = {}
        """One of each, for `add_plain`: what waits to be written stays small."""
        self._dropped = 0
        self._last_open_call = 0
        self.wall_offset = 0.0  # added to the bus's clock it gives the time of day
        self._held_bytes = 0
        self._is_overflowing = False
        self.change(settings)
        self.add: Callable[[Row], None] = self._rows.append
        """Log one delivery that has come to its end; may be kept and called at will."""
        self.add_plain: Callable[[Plain], None] = self._plain.extend
        """The same for one that went as most do."""

    def change(self, settings: JournalSettings) -> None:
        """Take new settings while running; the daemon obeys `enabled` and `write_seconds`."""
        self.settings = settings
        self.store.settings = settings
        self.keeps_payloads = settings.payload != "off"

    def remember(self, way: Way) -> Way:
        """Give a way that is not among `ways` yet."""
        if len(self.ways) >= MAX_WAYS:
            self.ways.clear()
        return self.ways.setdefault(way, way)

    def keep(self, payload: Raw) -> Raw | str:
        """Give as much of a payload as is to be logged, without holding on to a large frame."""
        settings = self.settings
        if settings.payload == "off":
            return ""
        size = memoryview(payload).nbytes
        if size <= settings.head_bytes:
            return payload
        if settings.payload == "full" and self._held_bytes + size <= settings.max_backlog_bytes:
            self._held_bytes += size
            return payload
        return cut_payload(payload, settings.head_bytes)

    def pump(self, open_since: OpenSince) -> None:
        """Hand what has gathered to the writer, if it is free.

        `open_since(call)` gives a row, 'in flight', for each delivery that is open now and whose
        call is later than `call`: so each is asked for once, and shown as such until it ends.
        """
        if self.store.is_busy:
            self._trim()
            return
        if self._waiting * 2 < self.settings.max_backlog_rows:
            self._is_overflowing = False  # and worth a warning when it comes again
        open_rows = list(islice(open_since(self._last_open_call), MAX_OPEN_ROWS))
        if open_rows:
            self._last_open_call = max(row[0] for row in open_rows)
        if self._waiting or open_rows or self._lost:
            plain, rows = self._plain.copy(), self._rows.copy()
            self.store.write(Batch(plain, self.wall_offset, rows, open_rows, self._lost))
            self._let_go(self._rows)
            self._rows.clear()
            self._plain.clear()
            self._lost = []

    def close(self, seconds: float = 5.0) -> None:
        """Write what is left, then stop the writer; gives up after `seconds`."""
        if self.store.wait_until_written(seconds / 2):
            self.pump(lambda _: ())
        self.store.close(seconds / 2)
        if self._waiting:
            self._dropped += self._waiting
            log.warning("journal.abandoned", rows=self._waiting)
            self._rows.clear()
            self._plain.clear()

    @property
    def dropped(self) -> int:
        """How many rows were given up since the start."""
        return self._dropped + self.store.dropped

    @property
    def backlog_rows(self) -> int:
        """How many rows wait to be written."""
        return self._waiting + self.store.backlog_rows

    @property
    def _waiting(self) -> int:
        return len(self._plain) // PLAIN_WIDTH + len(self._rows)

    def _trim(self) -> None:
        """Drop the newest rows over the limit: plain ones first, they say least."""
        excess = min(self.backlog_rows - self.settings.max_backlog_rows, self._waiting)
        if excess <= 0:
            return
        plain_left = max(0, len(self._plain) - excess * PLAIN_WIDTH)
        plain = self._plain[plain_left:]
        del self._plain[plain_left:]
        excess_rows = excess - len(plain) // PLAIN_WIDTH
        dropped = self._rows[len(self._rows) - excess_rows :]
        del self._rows[len(self._rows) - excess_rows :]
        # What came later was never shown as in flight.
        ended = [*plain_keys(plain), *((row[0], row[5]) for row in dropped)]
        self._lost += [key for key in ended if key[0] <= self._last_open_call]
        self._let_go(dropped)
        self._dropped += excess
        if not self._is_overflowing:
            self._is_overflowing = True
            log.warning("journal.overflowed", dropped=self.dropped, backlog=self.backlog_rows)

    def _let_go(self, rows: list[Row]) -> None:
        """Stop counting the payloads of rows that leave this list."""
        if not self._held_bytes:
            return
        sizes = (memoryview(row[13]).nbytes for row in rows if row[13].__class__ is Raw and row[6])
        held = sum(size for size in sizes if size > self.settings.head_bytes)
        self._held_bytes = max(0, self._held_bytes - held)


def plain_keys(plain: list[object]) -> Iterator[tuple[int, str]]:
    """Give call and addressee of each delivery in a flat list."""
    calls, ways = cast(list[int], plain[0::PLAIN_WIDTH]), cast(list[Way], plain[3::PLAIN_WIDTH])
    return zip(calls, (way[2] for way in ways), strict=True)


def cut_payload(payload: Raw, head_bytes: int) -> str:
    """Give the head of a payload as text, ending between two characters and saying so."""
    whole = memoryview(payload)
    head = str(whole[:head_bytes], "utf-8", "ignore")
    return f"{head}… ({whole.nbytes} bytes)"
