"""The loop's side of the activity log: it gathers, bounds and hands over, and never waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec import Raw
from structlog.testing import capture_logs

from busd.bus.record import Record
from busd.journal.journal import Journal, cut_payload, open_journal
from busd.journal.settings import JournalSettings
from busd.journal.writer import JournalWriter
from tests.journal.rows import (
    PATIENCE_SECONDS,
    ended,
    in_flight,
    nothing_open,
    select,
    statuses,
)

DEFAULTS = JournalSettings(payload="head")


class Log:
    """A journal with its writer and its file."""

    def __init__(self, folder: Path, settings: JournalSettings = DEFAULTS) -> None:
        self.path = folder / "journal.db"
        self.writer = JournalWriter(self.path, settings)
        self.journal = Journal(self.writer, settings)

    def write(self, open_since: Callable[[int], list[Record]] | None = None) -> None:
        """Hand over what there is and wait until it is written."""
        assert self.writer.wait_until_written(PATIENCE_SECONDS)
        self.journal.pump(open_since or nothing_open)
        assert self.writer.wait_until_written(PATIENCE_SECONDS)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Let the writer wait for a lock that somebody else has, with a row to write."""
        self.write()
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            self.journal.add(ended(0, "stalled"))
            self.journal.pump(nothing_open)
            yield
            other.execute("ROLLBACK")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.journal.close(PATIENCE_SECONDS)


@pytest.fixture
def narrow_log(tmp_path: Path) -> Iterator[Log]:
    """A log that keeps no more than ten rows waiting."""
    log = Log(tmp_path, JournalSettings(max_backlog_rows=10))
    yield log
    log.journal.close(PATIENCE_SECONDS)


# Handing over


def test_what_is_added_is_written_with_the_next_pump(log: Log) -> None:
    log.journal.add(ended(1))
    log.journal.add(ended(2))
    assert log.journal.backlog_rows == 2
    log.write()
    assert log.journal.backlog_rows == 0
    assert log.writer.written == 2
    assert statuses(log.path) == {"m1": "ok", "m2": "ok"}


def test_add_stays_the_same_function(log: Log) -> None:
    add = log.journal.add
    for call in range(3):
        add(ended(call))
        log.write()
    assert len(statuses(log.path)) == 3


def test_nothing_to_write_does_not_wake_the_writer(log: Log) -> None:
    log.journal.pump(nothing_open)
    assert not log.writer.is_busy


def test_an_open_delivery_is_asked_for_once_and_shown_until_it_ends(log: Log) -> None:
    asked: list[int] = []
    waiting = [in_flight(3), in_flight(8), in_flight(5)]

    def open_since(call: int) -> list[Record]:
        asked.append(call)
        return [record for record in waiting if record.call > call]

    log.write(open_since)
    assert statuses(log.path) == {"m3": "in flight", "m5": "in flight", "m8": "in flight"}
    waiting.append(in_flight(9))
    log.journal.add(ended(5))
    log.write(open_since)
    assert statuses(log.path) == {
        "m3": "in flight",
        "m5": "ok",
        "m8": "in flight",
        "m9": "in flight",
    }
    assert asked == [0, 8]


def test_while_the_writer_is_busy_rows_wait(log: Log) -> None:
    with log.stalled():
        log.journal.add(ended(1))
        log.journal.pump(nothing_open)
        assert log.writer.is_busy
        assert log.journal.backlog_rows == 2
    log.write()
    assert statuses(log.path) == {"stalled": "ok", "m1": "ok"}


def test_while_the_writer_is_busy_open_deliveries_are_not_asked_for(log: Log) -> None:
    with log.stalled():
        log.journal.pump(lambda call: pytest.fail("asked"))


def test_closing_writes_what_is_left(tmp_path: Path) -> None:
    with open_journal(tmp_path / "journal.db", DEFAULTS) as journal:
        journal.add(ended(1))
        journal.pump(nothing_open)
        journal.add(ended(2))
    assert statuses(tmp_path / "journal.db") == {"m1": "ok", "m2": "ok"}
    assert [each.name for each in tmp_path.iterdir()] == ["journal.db"]


# Bounds


def test_rows_over_the_limit_are_dropped_and_counted_the_newest_first(narrow_log: Log) -> None:
    with capture_logs() as logs, narrow_log.stalled():
        for call in range(1, 16):
            narrow_log.journal.add(ended(call))
            narrow_log.journal.pump(nothing_open)
        assert narrow_log.journal.backlog_rows == 10
        assert narrow_log.journal.dropped == 6
    narrow_log.write()
    assert list(statuses(narrow_log.path)) == ["stalled", *(f"m{call}" for call in range(1, 10))]
    assert [line["event"] for line in logs] == ["journal.overflowed"]


def test_an_open_delivery_whose_outcome_is_dropped_is_lost(narrow_log: Log) -> None:
    narrow_log.write(lambda call: [in_flight(1), in_flight(2)])
    with narrow_log.stalled():
        for call in range(10, 20):
            narrow_log.journal.add(ended(call))
        narrow_log.journal.add(ended(2))
        narrow_log.journal.pump(nothing_open)
    narrow_log.write()
    found = statuses(narrow_log.path)
    assert (found["m1"], found["m2"]) == ("in flight", "lost")
    narrow_log.journal.add(ended(1))
    narrow_log.write()
    assert statuses(narrow_log.path)["m1"] == "ok"


def test_a_row_that_cannot_be_written_is_counted_as_dropped(log: Log) -> None:
    log.journal.add(ended(1, "\ud800"))
    log.journal.add(ended(2))
    log.write()
    assert (log.writer.written, log.journal.dropped) == (1, 1)


# Payloads


def payload_of(log: Log, payload: bytes) -> str | None:
    """Log a message with this payload; give what is in the log."""
    log.journal.add(ended(1, payload=log.journal.keep(Raw(payload))))
    log.write()
    found: list[tuple[str | None]] = select(
        log.path, "SELECT payload_json FROM activity_log WHERE event = 'send_start'"
    )
    return found[-1][0]


def test_a_short_payload_is_kept_as_it_is(log: Log) -> None:
    payload = '{"x":"' + "y" * 504 + '"}'
    assert log.journal.keep(Raw(payload.encode())) == payload


def test_of_a_long_payload_the_head_is_kept_and_says_so(log: Log) -> None:
    kept = payload_of(log, b'{"x":"' + b"y" * 10_000 + b'"}')
    assert kept == '{"x":"' + "y" * 506 + "… (10008 bytes)"


def test_a_payload_is_cut_between_two_characters() -> None:
    text = '{"x":"aé世😀"}'
    cuts = {cut_payload(Raw(text.encode()), size) for size in range(len(text.encode()))}
    assert cuts == {f"{text[:size]}… (18 bytes)" for size in range(len(text))}


def test_all_of_a_payload_is_kept_if_wanted(tmp_path: Path) -> None:
    log = Log(tmp_path, JournalSettings(payload="full"))
    payload = b'{"x":"' + b"y" * 10_000 + b'"}'
    assert payload_of(log, payload) == payload.decode()
    log.journal.close(PATIENCE_SECONDS)


def test_nothing_of_a_payload_is_kept_if_not_wanted(tmp_path: Path) -> None:
    log = Log(tmp_path, JournalSettings(payload="off"))
    assert payload_of(log, b'{"x":"y"}') is None
    assert not log.journal.keeps_payloads
    log.journal.close(PATIENCE_SECONDS)


def test_whole_payloads_that_wait_are_bounded_in_bytes(tmp_path: Path) -> None:
    log = Log(tmp_path, JournalSettings(payload="full", max_backlog_bytes=5_000))
    payload = Raw(b'{"x":"' + b"y" * 1992 + b'"}')

    def keep_three() -> list[int]:
        kept = [log.journal.keep(payload) for _ in range(3)]
        for call, each in enumerate(kept):
            log.journal.add(ended(call, payload=each))
        return [len(each) for each in kept]

    assert keep_three() == [2000, 2000, len("… (2000 bytes)") + 512]
    log.write()
    assert keep_three()[:2] == [2000, 2000]
    log.journal.close(PATIENCE_SECONDS)


def test_settings_can_change_while_it_runs(log: Log) -> None:
    log.journal.change(JournalSettings(payload="off", max_bytes=2**20))
    assert log.journal.keep(Raw(b"{}")) == ""
    assert log.writer.settings.max_bytes == 2**20
