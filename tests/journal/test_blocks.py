"""Blocks of the activity log: a batch is one row, of bounded size, and is deleted as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from busd.bus.record import Record
from busd.journal.blocks import BLOCK_BYTES, BLOCK_RECORDS, RecordBatch, encode_blocks
from busd.journal.file import JournalFile
from busd.journal.query import tail, trace
from busd.journal.retention import DAY_SECONDS
from busd.journal.settings import JournalSettings
from tests.journal.rows import T0, batch, ended, in_flight, records, select

MONTH = JournalSettings(keep_days=30)


class Log:
    """A log whose clock a test can set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = T0
        self.file = JournalFile(path, lambda: self.now)

    def sizes(self) -> list[int]:
        """Return the number of deliveries in each block."""
        found = select(self.path, "SELECT json_array_length(deliveries) FROM block ORDER BY id")
        return [size for (size,) in found]

    def ids(self) -> list[tuple[int, int]]:
        """Return the first and last id of each block, counted from T0."""
        query = "SELECT id - ?1, last_id - ?1 FROM block ORDER BY id"
        return select(self.path, query, int(T0 * 1e6))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path / "journal.db")
    yield log
    log.file.close()


def test_a_batch_is_one_row(log: Log) -> None:
    log.file.write(batch(ended(call) for call in range(300)))
    log.file.write(batch([ended(300)]))
    assert log.sizes() == [300, 1]
    assert log.ids() == [(0, 299), (300, 300)]


def test_a_large_batch_is_several_rows(log: Log) -> None:
    log.file.write(batch(ended(call) for call in range(2 * BLOCK_RECORDS + 1)))
    assert log.sizes() == [BLOCK_RECORDS, BLOCK_RECORDS, 1]


def test_a_block_has_few_large_payloads(log: Log) -> None:
    large = "x" * (BLOCK_BYTES // 4)
    rows = [ended(call, payload=large if call < 8 else "") for call in range(100)]
    blocks = list(encode_blocks(rows))
    assert sum(count for count, _ in blocks) == 100
    assert max(len(block) for _, block in blocks) <= BLOCK_BYTES
    log.file.write(batch(rows))
    assert [record.call for record in records(log.path)] == list(range(100))


def test_a_payload_larger_than_a_block_is_a_block_of_its_own() -> None:
    rows = [ended(1), ended(2, payload="x" * 2 * BLOCK_BYTES), ended(3)]
    assert [count for count, _ in encode_blocks(rows)] == [1, 1, 1]


def test_each_delivery_in_flight_is_a_row_of_its_own(log: Log) -> None:
    log.file.write(batch([ended(1), ended(2)], [in_flight(3), in_flight(4)]))
    assert log.sizes() == [1, 1, 2]
    assert select(log.path, "SELECT is_in_flight FROM block ORDER BY id") == [(1,), (1,), (0,)]
    log.file.write(batch([ended(3)]))
    assert log.ids() == [(1, 1), (2, 3), (4, 4)]


def test_old_blocks_are_deleted_whole(log: Log) -> None:
    for seconds in range(3):
        log.now = T0 + seconds
        log.file.write(batch(ended(call) for call in range(BLOCK_RECORDS)))
    log.now = T0 + 30 * DAY_SECONDS + 1.0002  # some ids of the second block are later
    assert log.file.tidy(MONTH)
    assert log.file.tidy(MONTH)
    assert not log.file.tidy(MONTH)
    assert log.sizes() == [BLOCK_RECORDS]


# Reading


def test_a_message_is_found_in_whatever_block_it_is(log: Log) -> None:
    for first in range(0, 60, 6):
        log.file.write(batch(ended(call, sender=f"a:{call}") for call in range(first, first + 6)))
    for call in range(60):
        [attempt], _ = trace(log.path, f"m{call}")
        assert attempt.sender == f"a:{call}"


@pytest.mark.parametrize(
    "name", ['"', "\\", 'a"],[1,"b', "\x00", "a\x00b", "世界 😀", "%", "", "m"]
)
def test_a_message_is_found_by_any_id(log: Log, name: str) -> None:
    others = [f"{name}x", f"x{name}", f'"{name}"', name + name + "y"]
    named = [Record(1, each, 1, name, "b", "c", T0, T0) for each in [*others, name]]
    log.file.write(batch(named))
    attempts, count = trace(log.path, name)
    assert ([each.message_id for each in attempts], count) == ([name], 1)


def test_answers_in_several_batches_are_one_attempt_though_the_clock_was_set(log: Log) -> None:
    quick = ended(1, "m", to="all", peer="a", is_first=False, is_last=False, payload="")
    slow = ended(1, "m", to="all", peer="b", answered=T0 + 0.5)
    log.file.write(RecordBatch([quick], -60.0, [], []))
    log.file.write(RecordBatch([slow], 0.0, [], []))
    [attempt], _ = trace(log.path, "m")
    assert [each.peer for each in attempt.deliveries] == ["b", "a"]
    assert (attempt.ms, attempt.payload) == (500.0, '{"text":"hi"}')


def test_the_same_call_number_in_another_run_is_another_attempt(log: Log) -> None:
    log.file.write(batch([ended(1, "m")]))
    log.file.write(batch([ended(1, "m", start=T0 + 9)]))
    assert trace(log.path, "m")[1] == 2


def test_pages_of_any_size_show_each_delivery_once(log: Log) -> None:
    for first in range(0, 40, 8):
        log.file.write(batch(ended(call) for call in range(first, first + 8)))
    for limit in (1, 3, 8, 9, 100):
        seen: list[str] = []
        last = 0
        while page := tail(log.path, after_id=last, limit=limit):
            assert len(page) <= limit
            seen += [entry.message_id for entry in page]
            last = page[-1].id
        assert seen == [f"m{call}" for call in range(40)]
        latest = [entry.message_id for entry in tail(log.path, limit=limit)]
        assert latest == seen[-limit:]


def test_the_latest_are_found_without_reading_the_earlier_blocks(log: Log) -> None:
    for first in range(0, 40, 8):
        log.file.write(batch(ended(call) for call in range(first, first + 8)))
    log.file.open().execute(
        "UPDATE block SET deliveries = 'unreadable' WHERE id < ?", (T0 * 1e6 + 24,)
    )
    assert [entry.message_id for entry in tail(log.path, limit=3)] == ["m37", "m38", "m39"]
    assert [entry.message_id for entry in tail(log.path, after_id=int(T0 * 1e6) + 37)] == [
        "m38",
        "m39",
    ]
    assert trace(log.path, "m30")[1] == 1
