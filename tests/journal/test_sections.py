"""Sections of the activity log: each knows its own names and message ids, and goes as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from busd.bus import journal_file
from busd.bus.journal import Batch, JournalSettings
from busd.bus.journal_file import DAY_SECONDS, JournalFile
from busd.bus.journal_query import tail, trace
from tests.journal.rows import T0, batch, ended, in_flight, select

MONTH = JournalSettings(keep_days=30)


class Log:
    """A log with sections of ten deliveries, whose clock a test can set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = T0
        self.file = JournalFile(path, lambda: self.now)

    def write(self, *numbers: int) -> None:
        """Log deliveries from `a:N` to `b:N`, the even ones as most go."""
        plain: list[object] = []
        rows = []
        for number in numbers:
            if number % 2:
                rows.append(ended(number, sender=f"a:{number}", to=f"b:{number}"))
            else:
                way = f"a:{number}", f"b:{number}", f"b:{number}"
                plain += (number, f"m{number}", number, way, T0, T0 + 0.25)
        self.file.write(Batch(plain, 0.0, rows, [], []))

    def tidy(self) -> None:
        while self.file.tidy(MONTH):
            pass

    def sections(self, table: str) -> list[int]:
        found = select(self.path, f"SELECT DISTINCT section FROM {table} ORDER BY section")
        return [number for (number,) in found]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.setattr(journal_file, "SECTION_ROWS", 10)
    log = Log(tmp_path / "journal.db")
    yield log
    log.file.close()


def test_a_message_is_found_in_whatever_section_it_is(log: Log) -> None:
    for number in range(35):
        log.write(number)
    assert log.sections("delivery") == [1, 2, 3, 4]
    for number in range(35):
        [attempt] = trace(log.path, f"m{number}")
        assert (attempt.sender, attempt.to) == (f"a:{number}", f"b:{number}")


def test_the_attempts_of_a_message_are_found_in_all_their_sections(log: Log) -> None:
    for number in range(25):
        log.write(number)
        log.file.write(batch([ended(100 + number, "again", start=T0 + number)]))
    assert len(log.sections("delivery")) == 5
    assert len(trace(log.path, "again")) == 25


def test_who_talked_to_whom_is_noted_once_in_a_section(log: Log) -> None:
    log.write(*[7] * 9)
    log.write(8)
    log.write(*[7] * 3)
    assert select(log.path, "SELECT * FROM way ORDER BY section, number") == [
        (1, 0, "a:7", "b:7", "b:7"),
        (1, 1, "a:8", "b:8", "b:8"),
        (2, 0, "a:7", "b:7", "b:7"),
    ]


def test_a_new_run_writes_a_new_section(log: Log) -> None:
    log.write(1)
    log.file.close()
    again = Log(log.path)
    again.write(2)
    again.file.close()
    assert log.sections("delivery") == [1, 2]
    assert [entry.sender for entry in tail(log.path)] == ["a:1", "a:2"]


def test_a_section_lasts_a_day(log: Log) -> None:
    for hours in (0, 23, 25):
        log.now = T0 + hours * 3600
        log.write(hours)
    assert log.sections("delivery") == [1, 2]


def test_what_a_write_noted_before_it_failed_is_noted_again(log: Log) -> None:
    with closing(sqlite3.connect(log.path)) as other:
        other.execute(
            "CREATE TRIGGER no BEFORE INSERT ON delivery BEGIN SELECT raise(ABORT, 'no'); END"
        )
        with pytest.raises(sqlite3.IntegrityError):
            log.write(1, 2)
        other.execute("DROP TRIGGER no")
    log.write(1, 2)
    assert [entry.sender for entry in tail(log.path)] == ["a:1", "a:2"]


def test_a_section_goes_when_the_last_of_its_deliveries_is_gone(log: Log) -> None:
    log.write(*range(10))
    log.write(*range(10, 15))
    log.now = T0 + 1.0
    log.write(*range(15, 20))
    log.write(20)
    log.now = T0 + 30 * DAY_SECONDS + 0.5
    log.tidy()
    assert log.sections("way") == log.sections("by_message_id") == [2, 3]
    assert len(tail(log.path)) == 6
    assert trace(log.path, "m12") == []
    log.now += 1.0
    log.tidy()
    assert tail(log.path) == []
    assert log.sections("way") == log.sections("by_message_id") == []  # no name outlives its time
    log.write(3)
    assert [entry.sender for entry in tail(log.path)] == ["a:3"]
    assert [attempt.to for attempt in trace(log.path, "m3")] == ["b:3"]


def test_a_delivery_that_was_in_flight_is_traced_once(log: Log) -> None:
    log.file.write(batch([], [in_flight(1, "m")]))
    log.file.write(batch([ended(1, "m")]))
    assert [attempt.status for attempt in trace(log.path, "m")] == ["ok"]


def test_a_lookup_goes_through_the_index_however_large_the_log_is(log: Log) -> None:
    for first in range(0, 1000, 100):
        log.write(*range(first, first + 100))
    query = "SELECT * FROM activity_log WHERE message_id = 'm77'"
    plan = [row[3] for row in select(log.path, f"EXPLAIN QUERY PLAN {query}")]
    lookups = [step for step in plan if "(ANY(section) AND message_id=?)" in step]
    assert len(lookups) == 4
    assert not [step for step in plan if step.startswith("SCAN")]
    assert len(select(log.path, query)) == 4
