"""Deliveries that went as most do: kept as flat values, read like any other."""

from __future__ import annotations

from pathlib import Path

from busd.bus.journal import MAX_WAYS, Batch, Journal, JournalSettings, Plain, plain_keys
from busd.bus.journal_file import JournalFile
from busd.bus.journal_rows import plain_as_rows
from busd.bus.journal_store import JournalStore, open_journal
from tests.journal.rows import (
    PATIENCE_SECONDS,
    T0,
    ended,
    in_flight,
    nothing_open,
    select,
)

EVENTS = "SELECT ts, event, message_id, rpc_id, actor, to_address, status, payload_json, error"


def plain(call: int, message_id: str = "", rpc_id: int | str = 1, peer: str = "agent:w") -> Plain:
    """The same delivery as `ended(call, payload="")`."""
    return (call, message_id or f"m{call}", rpc_id, ("tg:1", "agent:w", peer), T0, T0 + 0.25)


def flat(*deliveries: Plain) -> list[object]:
    return [value for delivery in deliveries for value in delivery]


def test_a_plain_delivery_reads_like_any_other(tmp_path: Path) -> None:
    deliveries = [plain(1), plain(2, rpc_id="x"), plain(3, peer="another")]
    files = JournalFile(tmp_path / "flat.db"), JournalFile(tmp_path / "rows.db")
    written = Batch(flat(*deliveries), 60.0, [], [], [])
    files[0].write(written)
    files[1].write(Batch([], 0.0, plain_as_rows(written), [], []))
    for file in files:
        file.close()
    events = f"{EVENTS} FROM activity_log ORDER BY message_id, ts, event"
    shown = select(tmp_path / "flat.db", events)
    assert shown == select(tmp_path / "rows.db", events)
    assert len(shown) == 12


def test_a_plain_delivery_takes_the_place_of_its_row_in_flight(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "journal.db")
    file.write(Batch([], 0.0, [], [in_flight(1), in_flight(2)], []))
    file.write(Batch(flat(plain(1)), 0.0, [], [], []))
    file.close()
    found = select(tmp_path / "journal.db", "SELECT message_id, status FROM deliveries ORDER BY id")
    assert found == [("m2", "in flight"), ("m1", "ok")]


def test_a_plain_delivery_that_cannot_be_written_does_not_hold_up_the_others(
    tmp_path: Path,
) -> None:
    file = JournalFile(tmp_path / "journal.db")
    odd = flat(plain(1), plain(2, "\ud800"), plain(3, rpc_id=2**64))
    assert file.write(Batch(odd, 0.0, [ended(4)], [], [])) == 1
    file.close()
    found = select(tmp_path / "journal.db", "SELECT message_id, rpc_id FROM deliveries ORDER BY id")
    assert found == [("m1", "1"), ("m3", str(2**64)), ("m4", "1")]


def test_over_the_limit_plain_deliveries_are_dropped_before_the_others(tmp_path: Path) -> None:
    store = JournalStore(tmp_path / "journal.db", JournalSettings(max_backlog_rows=3))
    journal = Journal(store, store.settings)
    for call in range(1, 4):
        journal.add_plain(plain(call))
    journal.add(ended(4))
    journal.add(ended(5))
    journal._trim()  # what `pump` does while the writer is busy
    assert (journal.backlog_rows, journal.dropped) == (3, 2)
    for call in range(6, 10):
        journal.add(ended(call))
    journal._trim()
    assert (journal.backlog_rows, journal.dropped) == (3, 6)
    journal.pump(nothing_open)
    assert store.wait_until_written(PATIENCE_SECONDS)
    journal.close(PATIENCE_SECONDS)
    found = select(tmp_path / "journal.db", "SELECT message_id FROM deliveries ORDER BY message_id")
    assert found == [("m4",), ("m5",), ("m6",)]


def test_of_each_way_one_is_kept_and_not_too_many_of_them(tmp_path: Path) -> None:
    with open_journal(tmp_path / "journal.db", JournalSettings()) as journal:
        known = journal.remember(("a", "b", "c"))
        assert journal.remember(("a", "b", "c")) is known
        for number in range(MAX_WAYS + 1):
            journal.remember((f"a:{number}", "b", "c"))
        assert 0 < len(journal.ways) <= MAX_WAYS


def test_the_keys_of_a_flat_list() -> None:
    assert list(plain_keys(flat(plain(1), plain(7, peer="b")))) == [(1, "agent:w"), (7, "b")]
