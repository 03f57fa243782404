"""The writer of the activity log: it keeps trying, starts over, tidies up and stops in time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from busd.bus.journal import JournalSettings
from busd.bus.journal_store import JournalStore
from tests.journal.rows import PATIENCE_SECONDS, T0, batch, ended, select, statuses

DEFAULTS = JournalSettings()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def store(path: Path) -> Iterator[JournalStore]:
    store = JournalStore(path, DEFAULTS)
    yield store
    store.close(PATIENCE_SECONDS)


def write(store: JournalStore, *names: str) -> None:
    store.write(batch(ended(call, name) for call, name in enumerate(names)))
    assert store.wait_until_written(PATIENCE_SECONDS)


def wait_until_failing(store: JournalStore) -> None:
    with store._changed:
        assert store._changed.wait_for(lambda: store.is_failing, PATIENCE_SECONDS)


def damage(path: Path) -> None:
    """Spoil the pages in the middle of the file."""
    with path.open("r+b") as raw:
        raw.seek(8 * 4096)
        raw.write(b"\xff" * 4096 * 8)


def test_a_batch_that_cannot_be_written_is_tried_again_until_it_can(path: Path) -> None:
    with capture_logs() as logs:
        store = JournalStore(path, DEFAULTS)
        write(store, "before")
        assert store.wait_until_idle(PATIENCE_SECONDS)
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE delivery RENAME TO elsewhere")
            store.write(batch([ended(1, "meanwhile")]))
            wait_until_failing(store)
            assert store.is_busy
            other.execute("ALTER TABLE elsewhere RENAME TO delivery")
        assert store.wait_until_written(PATIENCE_SECONDS)
        write(store, "after")
        assert store.close(PATIENCE_SECONDS)
    assert list(statuses(path)) == ["before", "meanwhile", "after"]
    assert store.write_errors >= 1
    assert not store.is_failing
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("error", "journal.failed"),
        ("warning", "journal.recovered"),
    ]


def test_a_writer_that_cannot_write_stops_all_the_same(path: Path) -> None:
    store = JournalStore(path, DEFAULTS)
    write(store, "before")
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE delivery")
    with capture_logs() as logs:
        store.write(batch([ended(1), ended(2)]))
        wait_until_failing(store)
        assert store.close(PATIENCE_SECONDS)
    assert store.dropped == 2
    assert {"event": "journal.abandoned", "rows": 2, "log_level": "warning"} in logs


def test_a_damaged_file_is_moved_aside_before_it_is_written_to(path: Path) -> None:
    store = JournalStore(path, DEFAULTS)
    store.write(batch(ended(call, payload="x" * 500) for call in range(1000)))
    assert store.close(PATIENCE_SECONDS)
    damage(path)
    with capture_logs() as logs:
        store = JournalStore(path, DEFAULTS)
        write(store, "after")
        assert store.close(PATIENCE_SECONDS)
    assert statuses(path) == {"after": "ok"}
    [aside] = path.parent.glob("journal.db.corrupt-*")
    assert aside.stat().st_size > 500_000
    assert [(line["event"], line["to"]) for line in logs] == [("journal.moved_aside", str(aside))]


def test_a_file_that_is_damaged_while_it_is_written_is_moved_aside(path: Path) -> None:
    store = JournalStore(path, DEFAULTS)
    store.write(batch(ended(call, payload="x" * 500) for call in range(1000)))
    assert store.wait_until_idle(PATIENCE_SECONDS)
    # A damaged page of the index on message ids is met as soon as one is inserted there.
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.execute("PRAGMA writable_schema = ON")
        other.execute("UPDATE sqlite_master SET rootpage = 99999 WHERE type = 'index'")
        other.commit()
        other.execute("PRAGMA schema_version = 77")
    with capture_logs() as logs:
        write(store, "after")
        assert store.close(PATIENCE_SECONDS)
    assert statuses(path) == {"after": "ok"}
    assert [line["event"] for line in logs] == [
        "journal.failed",
        "journal.moved_aside",
        "journal.recovered",
    ]


def test_old_rows_go_without_being_asked(path: Path) -> None:
    now = T0
    store = JournalStore(path, JournalSettings(keep_days=1), clock=lambda: now)
    store.write(batch(ended(call) for call in range(5000)))
    assert store.wait_until_idle(PATIENCE_SECONDS)
    assert len(statuses(path)) == 5000
    now = T0 + 2 * 86_400
    write(store, "now")
    assert store.wait_until_idle(PATIENCE_SECONDS)
    assert statuses(path) == {"now": "ok"}
    assert store.close(PATIENCE_SECONDS)


def test_a_size_that_is_set_lower_takes_effect_with_the_next_batch(
    store: JournalStore, path: Path
) -> None:
    store.write(batch(ended(call, payload="x" * 500) for call in range(5000)))
    assert store.wait_until_idle(PATIENCE_SECONDS)
    assert len(statuses(path)) == 5000
    store.settings = JournalSettings(max_bytes=2**20)
    write(store, "now")
    assert store.wait_until_idle(PATIENCE_SECONDS)
    [(pages,)] = select(path, "PRAGMA page_count")
    assert pages * 4096 <= 2**20
    assert "now" in statuses(path)


def test_closing_does_not_wait_for_the_check_of_a_large_file(path: Path) -> None:
    store = JournalStore(path, DEFAULTS)
    store.write(batch(ended(call, payload="x" * 2000) for call in range(20_000)))
    assert store.close(PATIENCE_SECONDS)
    for _ in range(5):
        assert JournalStore(path, DEFAULTS).close(PATIENCE_SECONDS)
    assert len(statuses(path)) == 20_000


def test_readers_see_whole_batches_while_it_is_written(store: JournalStore, path: Path) -> None:
    counts: set[int] = set()
    is_done = threading.Event()

    def read() -> None:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            while not is_done.is_set():
                counts.add(db.execute("SELECT count(*) FROM activity_log").fetchone()[0])

    write(store, "first")
    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        store.write(batch(ended(call, f"{number}.{call}") for call in range(200)))
        assert store.wait_until_written(PATIENCE_SECONDS)
    is_done.set()
    reader.join(PATIENCE_SECONDS)
    assert len(counts) > 2
    assert {count % 800 for count in counts} == {4}
    assert store.write_errors == 0
