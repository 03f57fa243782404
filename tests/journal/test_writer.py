"""The writer of the activity log: it keeps trying, starts over, tidies up and stops in time."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from busd.journal.settings import JournalSettings
from busd.journal.writer import JournalWriter
from tests.journal.rows import PATIENCE_SECONDS, T0, batch, ended, select, statuses

DEFAULTS = JournalSettings()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def writer(path: Path) -> Iterator[JournalWriter]:
    writer = JournalWriter(path, DEFAULTS)
    yield writer
    writer.close(PATIENCE_SECONDS)


def write(writer: JournalWriter, *names: str) -> None:
    writer.write(batch(ended(call, name) for call, name in enumerate(names)))
    assert writer.wait_until_written(PATIENCE_SECONDS)


def wait_until_failing(writer: JournalWriter) -> None:
    with writer._changed:
        assert writer._changed.wait_for(lambda: writer.is_failing, PATIENCE_SECONDS)


def damage(path: Path) -> None:
    """Spoil the pages in the middle of the file."""
    with path.open("r+b") as raw:
        raw.seek(8 * 4096)
        raw.write(b"\xff" * 4096 * 8)


def test_a_batch_that_cannot_be_written_is_tried_again_until_it_can(path: Path) -> None:
    with capture_logs() as logs:
        writer = JournalWriter(path, DEFAULTS)
        write(writer, "before")
        assert writer.wait_until_idle(PATIENCE_SECONDS)
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE block RENAME TO elsewhere")
            writer.write(batch([ended(1, "meanwhile")]))
            wait_until_failing(writer)
            assert writer.is_busy
            other.execute("ALTER TABLE elsewhere RENAME TO block")
        assert writer.wait_until_written(PATIENCE_SECONDS)
        write(writer, "after")
        assert writer.close(PATIENCE_SECONDS)
    assert list(statuses(path)) == ["before", "meanwhile", "after"]
    assert writer.write_errors >= 1
    assert not writer.is_failing
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("error", "journal.failed"),
        ("warning", "journal.recovered"),
    ]


def test_a_writer_that_cannot_write_stops_all_the_same(path: Path) -> None:
    writer = JournalWriter(path, DEFAULTS)
    write(writer, "before")
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE block")
    with capture_logs() as logs:
        writer.write(batch([ended(1), ended(2)]))
        wait_until_failing(writer)
        assert writer.close(PATIENCE_SECONDS)
    assert writer.dropped == 2
    assert {"event": "journal.abandoned", "rows": 2, "log_level": "warning"} in logs


def test_a_damaged_file_is_moved_aside_before_it_is_written_to(path: Path) -> None:
    writer = JournalWriter(path, DEFAULTS)
    writer.write(batch(ended(call, payload="x" * 500) for call in range(1000)))
    assert writer.close(PATIENCE_SECONDS)
    damage(path)
    with capture_logs() as logs:
        writer = JournalWriter(path, DEFAULTS)
        write(writer, "after")
        assert writer.close(PATIENCE_SECONDS)
    assert statuses(path) == {"after": "ok"}
    [aside] = path.parent.glob("journal.db.corrupt-*")
    assert aside.stat().st_size > 500_000
    assert [(line["event"], line["to"]) for line in logs] == [("journal.moved_aside", str(aside))]


def test_a_file_that_is_damaged_while_it_is_written_is_moved_aside(path: Path) -> None:
    writer = JournalWriter(path, DEFAULTS)
    writer.write(batch(ended(call, payload="x" * 500) for call in range(1000)))
    assert writer.wait_until_idle(PATIENCE_SECONDS)
    # A damaged root page of the index is met as soon as a block is inserted.
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.execute("PRAGMA writable_schema = ON")
        other.execute("UPDATE sqlite_master SET rootpage = 99999 WHERE type = 'index'")
        other.commit()
        other.execute("PRAGMA schema_version = 77")
    with capture_logs() as logs:
        write(writer, "after")
        assert writer.close(PATIENCE_SECONDS)
    assert statuses(path) == {"after": "ok"}
    assert [line["event"] for line in logs] == [
        "journal.failed",
        "journal.moved_aside",
        "journal.recovered",
    ]


def test_old_rows_go_without_being_asked(path: Path) -> None:
    now = T0
    writer = JournalWriter(path, JournalSettings(keep_days=1), clock=lambda: now)
    writer.write(batch(ended(call) for call in range(5000)))
    assert writer.wait_until_idle(PATIENCE_SECONDS)
    assert len(statuses(path)) == 5000
    now = T0 + 2 * 86_400
    write(writer, "now")
    assert writer.wait_until_idle(PATIENCE_SECONDS)
    assert statuses(path) == {"now": "ok"}
    assert writer.close(PATIENCE_SECONDS)


def test_a_size_that_is_set_lower_takes_effect_with_the_next_batch(
    writer: JournalWriter, path: Path
) -> None:
    writer.write(batch(ended(call, payload="x" * 500) for call in range(5000)))
    assert writer.wait_until_idle(PATIENCE_SECONDS)
    assert len(statuses(path)) == 5000
    writer.settings = JournalSettings(max_bytes=2**20)
    write(writer, "now")
    assert writer.wait_until_idle(PATIENCE_SECONDS)
    [(pages,)] = select(path, "PRAGMA page_count")
    assert pages * 4096 <= 2**20
    assert "now" in statuses(path)


def test_closing_does_not_wait_for_the_check_of_a_large_file(path: Path) -> None:
    writer = JournalWriter(path, DEFAULTS)
    writer.write(batch(ended(call, payload="x" * 2000) for call in range(20_000)))
    assert writer.close(PATIENCE_SECONDS)
    for _ in range(5):
        assert JournalWriter(path, DEFAULTS).close(PATIENCE_SECONDS)
    assert len(statuses(path)) == 20_000


def test_readers_see_whole_batches_while_it_is_written(writer: JournalWriter, path: Path) -> None:
    counts: set[int] = set()
    is_done = threading.Event()

    def read() -> None:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            while not is_done.is_set():
                counts.add(db.execute("SELECT count(*) FROM activity_log").fetchone()[0])

    write(writer, "first")
    reader = threading.Thread(target=read)
    reader.start()
    # For as long as the reader, which gets its turn when it may, has not looked in between.
    end = time.monotonic() + PATIENCE_SECONDS
    while len(counts) <= 2 and time.monotonic() < end:
        writer.write(batch(ended(call, f"m.{call}") for call in range(20)))
        assert writer.wait_until_written(PATIENCE_SECONDS)
    is_done.set()
    reader.join(PATIENCE_SECONDS)
    assert len(counts) > 2
    assert {count % 80 for count in counts} == {4}
    assert writer.write_errors == 0
