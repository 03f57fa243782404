"""The file of the activity log: opened safely, written whole, kept small."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from busd.errors import ConfigError
from busd.journal.blocks import LAYOUT, RecordBatch
from busd.journal.file import JournalFile
from busd.journal.retention import DAY_SECONDS
from busd.journal.settings import JournalSettings
from tests.journal.rows import T0, batch, ended, in_flight, records, select, statuses

MiB = 1024 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@contextmanager
def open_file(path: Path, now: float = T0) -> Iterator[JournalFile]:
    file = JournalFile(path, lambda: now)
    try:
        yield file
    finally:
        file.close()


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


# Opening


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
def test_nobody_else_can_read_the_log(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with open_file(path) as file:
            file.write(batch([ended(1)]))
            assert mode(path.parent) == "0o700"
            assert {each.name: mode(each) for each in path.parent.iterdir()} == {
                "journal.db": "0o600",
                "journal.db-shm": "0o600",
                "journal.db-wal": "0o600",
            }
    finally:
        os.umask(before)


def test_a_log_that_others_could_read_is_closed_to_them(path: Path) -> None:
    with open_file(path):
        path.chmod(0o644)
    with open_file(path):
        assert mode(path) == "0o600"


def test_what_was_written_is_there_when_it_is_opened_again(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([ended(1)]))
    with open_file(path) as file:
        file.write(batch([ended(1, "again")]))
    assert statuses(path) == {"m1": "ok", "again": "ok"}


def test_the_log_of_a_newer_busd_is_left_alone(path: Path) -> None:
    with open_file(path):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 4")
    before = path.read_bytes()
    with pytest.raises(ConfigError) as problem:
        JournalFile(path)
    assert str(problem.value) == (
        f"cannot open the activity log {path}: another version of busd wrote it (its schema is 4, "
        "this one knows 3); install that, or move it away"
    )
    assert path.read_bytes() == before


def test_the_log_of_an_earlier_busd_is_moved_aside_whole(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([ended(1, "earlier")]))
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {LAYOUT.version - 1}")
    with capture_logs() as logs, open_file(path) as file:
        file.write(batch([ended(1, "now")]))
    [aside] = path.parent.glob("journal.db.old-*")
    assert statuses(aside) == {"earlier": "ok"}
    assert statuses(path) == {"now": "ok"}
    assert [(line["event"], line["to"], line["problem"]) for line in logs] == [
        ("journal.moved_aside", str(aside), "an earlier busd wrote it; SQL can still read it")
    ]


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE delivery (parcel TEXT)")
    with pytest.raises(ConfigError, match="it holds something else; move it away"):
        JournalFile(path)


def test_a_log_that_cannot_be_opened_is_the_operators_to_mend(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError) as problem:
        JournalFile(path)
    expected = f"cannot open the activity log {path}: it is not a regular file"
    assert str(problem.value) == expected


def test_a_log_below_a_file_is_the_operators_to_mend(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    path = tmp_path / "state" / "journal.db"
    with pytest.raises(ConfigError, match=f"cannot open the activity log {path}: Not a directory"):
        JournalFile(path)


def test_a_file_that_is_no_database_is_moved_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"This is not an activity log." * 1000)
    with capture_logs() as logs, open_file(path) as file:
        file.write(batch([ended(1)]))
    [aside] = path.parent.glob("journal.db.corrupt-*")
    assert aside.read_bytes().startswith(b"This is not")
    assert statuses(path) == {"m1": "ok"}
    assert [(line["event"], line["log_level"], line["to"]) for line in logs] == [
        ("journal.moved_aside", "warning", str(aside))
    ]


def test_a_file_with_a_damaged_page_is_moved_aside(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([ended(call) for call in range(1000)]))
        file.check()
        assert len(statuses(path)) == 1000
    with path.open("r+b") as raw:
        raw.seek(5 * 4096)
        raw.write(b"\xff" * 4096)
    with capture_logs() as logs, open_file(path) as file:
        file.check()
    assert "page" in logs[0]["problem"]
    assert len(list(path.parent.glob("journal.db.corrupt-*"))) == 1


def test_a_log_that_was_deleted_is_begun_again(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([ended(1)]))
        path.unlink()
        file.write(batch([ended(2)]))
        assert statuses(path) == {"m2": "ok"}


# Writing


def test_ids_grow_over_restarts_even_if_the_clock_goes_back(path: Path) -> None:
    for number, now in enumerate([T0, T0 + 1, T0 - 3600, T0 + 1]):
        with open_file(path, now) as file:
            file.write(batch([ended(1, f"{number}a"), ended(2, f"{number}b")]))
    assert [record.message_id for record in records(path)] == [
        f"{number}{part}" for number in range(4) for part in "ab"
    ]
    [(first,)] = select(path, "SELECT min(id) FROM block")
    assert first == T0 * 1e6


def test_a_delivery_in_flight_gives_way_to_its_outcome(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([], [in_flight(1), in_flight(2)]))
        assert statuses(path) == {"m1": "in flight", "m2": "in flight"}
        file.write(batch([ended(1)]))
        assert statuses(path) == {"m1": "ok", "m2": "in flight"}
        file.write(batch([ended(2, status="failed"), ended(3)]))
        assert statuses(path) == {"m1": "ok", "m2": "failed", "m3": "ok"}
    assert len(records(path)) == 3


def test_each_addressee_has_a_row_in_flight_of_its_own(path: Path) -> None:
    # Two connections may carry the same clientId.
    waiting = [in_flight(1, "m", peer=peer) for peer in ("a", "b", "b")]
    with open_file(path) as file:
        file.write(batch([], waiting))
        file.write(batch([ended(1, "m", peer="b")]))
        found = sorted((record.peer, record.status) for record in records(path))
        assert found == [("a", "in flight"), ("b", "in flight"), ("b", "ok")]
        file.write(batch([ended(1, "m", peer="b"), ended(1, "m", peer="a")]))
    assert sorted((record.peer, record.status) for record in records(path)) == [
        ("a", "ok"),
        ("b", "ok"),
        ("b", "ok"),
    ]


def test_what_was_in_flight_at_the_end_of_a_run_is_lost(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([ended(1)], [in_flight(2)]))
    with open_file(path) as file:
        assert statuses(path) == {"m1": "ok", "m2": "lost"}
        file.write(batch([ended(2, "another run's second call")]))
    assert statuses(path) == {"m1": "ok", "m2": "lost", "another run's second call": "ok"}


def test_a_delivery_whose_outcome_was_dropped_is_lost(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([], [in_flight(1), in_flight(2)]))
        file.write(RecordBatch([], 0.0, [], [(1, "agent:w")]))
        assert statuses(path) == {"m1": "lost", "m2": "in flight"}


def test_a_row_that_cannot_be_written_does_not_hold_up_the_others(path: Path) -> None:
    odd = ended(2, "lone \ud800"), ended(3, rpc_id=2**64), ended(4)
    odd[2].error = object()  # type: ignore[assignment]  # a bug somewhere
    with open_file(path) as file:
        rows = [ended(1), *odd, ended(5)]
        assert file.write(batch(rows, [in_flight(6, "\udfff"), in_flight(7)])) == 2
    assert statuses(path) == {"m7": "in flight", "m1": "ok", "m3": "ok", "m5": "ok"}


def test_a_batch_that_fails_leaves_nothing_behind_and_can_be_written_again(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([], [in_flight(1)]))
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA busy_timeout = 0")
            other.execute(
                "CREATE TRIGGER no BEFORE INSERT ON block WHEN instr(new.deliveries, 'm999') "
                "BEGIN SELECT raise(ABORT, 'no'); END"
            )
        rows = [ended(call) for call in range(1, 1000)]
        with pytest.raises(sqlite3.IntegrityError):
            file.write(batch(rows))
        assert statuses(path) == {"m1": "in flight"}
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TRIGGER no")
        file.write(batch(rows))
    assert statuses(path) == {f"m{call}": "ok" for call in range(1, 1000)}


@pytest.mark.parametrize("count", [1, 511, 512, 513, 2000])
def test_batches_of_any_size_are_written_whole_and_in_order(path: Path, count: int) -> None:
    rows = [ended(call, status="ok" if call % 3 else "failed") for call in range(count)]
    with open_file(path) as file:
        file.write(batch(rows))
    assert statuses(path) == {row.message_id: row.status for row in rows}


# Tidying


def tidy(file: JournalFile, settings: JournalSettings) -> int:
    """Tidy until there is nothing left to do; give the number of steps."""
    return len(list(iter(lambda: file.tidy(settings), False)))


def test_rows_older_than_wanted_go_and_the_file_shrinks(path: Path) -> None:
    month = JournalSettings(keep_days=30)
    with open_file(path) as file:
        file.write(batch([ended(call, payload="x" * 500) for call in range(10_000)]))
        assert tidy(file, month) == 0
    before = path.stat().st_size
    with open_file(path, T0 + 29 * DAY_SECONDS) as file:
        file.write(batch([ended(1, "younger")]))
        assert tidy(file, month) == 0
    with open_file(path, T0 + 30.5 * DAY_SECONDS) as file:
        assert tidy(file, month) > 20  # small steps
        assert statuses(path) == {"younger": "ok"}
    assert path.stat().st_size < before / 10


def test_a_file_that_is_too_large_loses_its_oldest_rows_and_shrinks(path: Path) -> None:
    with open_file(path) as file:
        for first in range(0, 20_000, 1000):
            file.write(
                batch([ended(call, payload="x" * 300) for call in range(first, first + 1000)])
            )
    assert path.stat().st_size > 6 * MiB
    with open_file(path) as file:
        assert tidy(file, JournalSettings(max_bytes=2 * MiB)) > 10
        found = {int(record.message_id[1:]) for record in records(path)}
        assert found == set(range(20_000 - len(found), 20_000))
    assert 1.5 * MiB < path.stat().st_size <= 2 * MiB


def test_a_full_file_stays_as_it_is_while_rows_come_and_go(path: Path) -> None:
    settings = JournalSettings(max_bytes=1 * MiB)
    with open_file(path) as file:
        for first in range(0, 10_000, 500):
            file.write(
                batch([ended(call, payload="x" * 300) for call in range(first, first + 500)])
            )
            tidy(file, settings)
            [(pages,)] = select(path, "PRAGMA page_count")
            assert pages * 4096 <= 1 * MiB
        names = [int(record.message_id[1:]) for record in records(path)]
        assert len(names) > 1500
        assert max(names) == 9_999


def test_a_size_too_small_for_anything_is_no_endless_task(path: Path) -> None:
    with open_file(path) as file:
        file.write(batch([ended(call) for call in range(1000)]))
        assert tidy(file, JournalSettings(max_bytes=1)) < 10
        assert statuses(path) == {}
        assert not file.tidy(JournalSettings(max_bytes=1))
