"""What plain SQL shows: the view `activity_log`, event by event."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from busd.bus.record import Record
from busd.journal.file import JournalFile
from tests.journal.rows import T0, batch, ended, in_flight, no_route, select

COLUMNS = "id, ts, event, message_id, rpc_id, actor, to_address, status, payload_json, error"
START, QUARTER, HALF = (f"2025-10-09T08:53:20.{part}Z" for part in ("000000", "250000", "500000"))
Event = tuple[str | None, ...]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def write(path: Path, rows: list[Record], open_rows: list[Record] | None = None) -> None:
    file = JournalFile(path)
    file.write(batch(rows, open_rows or []))
    file.close()


def events(path: Path) -> list[Event]:
    """Return all events in order, without the ids."""
    return [row[1:] for row in select(path, "SELECT * FROM activity_log ORDER BY id")]


def test_the_view_has_the_columns_of_the_protocol(path: Path) -> None:
    write(path, [])
    found = select(path, "SELECT name FROM pragma_table_info('activity_log')")
    assert ", ".join(name for (name,) in found) == COLUMNS


def test_an_answered_message_has_four_events(path: Path) -> None:
    write(path, [ended(1, "m", rpc_id=7)])
    assert events(path) == [
        (START, "send_start", "m", "7", "tg:1", "agent:w", "ok", '{"text":"hi"}', None),
        (START, "process_start", "m", "7", "agent:w", "agent:w", "ok", None, None),
        (QUARTER, "process_finish", "m", "7", "agent:w", "agent:w", "ok", None, None),
        (QUARTER, "send_finish", "m", "7", "tg:1", "agent:w", "ok", None, None),
    ]


def test_a_failed_delivery_says_why_where_it_finished(path: Path) -> None:
    write(path, [ended(1, "m", status="failed", error="no answer in time")])
    assert [(event[1], event[6], event[8]) for event in events(path)] == [
        ("send_start", "failed", None),
        ("process_start", "failed", None),
        ("process_finish", "failed", "no answer in time"),
        ("send_finish", "failed", "no answer in time"),
    ]


def test_a_message_that_nobody_was_there_for_was_sent_but_not_processed(path: Path) -> None:
    write(path, [no_route(1, "m")])
    assert events(path) == [
        (START, "send_start", "m", "1", "tg:1", "agent:w", "no route", '{"text":"hi"}', None),
        (START, "send_finish", "m", "1", "tg:1", "agent:w", "no route", None, None),
    ]


def test_a_message_in_flight_has_no_finish_yet(path: Path) -> None:
    write(path, [], [in_flight(1, "m")])
    assert [(event[1], event[6]) for event in events(path)] == [
        ("send_start", "in flight"),
        ("process_start", "in flight"),
    ]


def test_a_message_to_several_is_sent_once_and_processed_by_each(path: Path) -> None:
    quick = ended(1, "m", to="all", peer="a", is_first=False, is_last=False, payload="")
    slow = ended(1, "m", to="all", peer="b", answered=T0 + 0.5)
    write(path, [quick, slow])
    found = select(path, "SELECT ts, event, actor FROM activity_log ORDER BY ts, event DESC, actor")
    assert found == [
        (START, "send_start", "tg:1"),
        (START, "process_start", "a"),
        (START, "process_start", "b"),
        (QUARTER, "process_finish", "a"),
        (HALF, "send_finish", "tg:1"),
        (HALF, "process_finish", "b"),
    ]


@pytest.mark.parametrize(
    ("rpc_id", "text"),
    [(7, "7"), ("seven", "seven"), (1.5, "1.5"), (None, None), (2**70, str(2**70))],
    ids=str,
)
def test_the_request_id_is_shown_as_text(
    path: Path, rpc_id: int | float | str | None, text: str | None
) -> None:
    write(path, [ended(1, rpc_id=rpc_id), ended(2, rpc_id=rpc_id, status="failed")])
    assert {event[3] for event in events(path)} == {text}


def test_a_payload_is_shown_as_it_was_sent(path: Path) -> None:
    write(path, [ended(1, payload='{ "text": "Grüße, 世界 \\u0000" }')])
    assert events(path)[0][7] == '{ "text": "Grüße, 世界 \\u0000" }'


def test_a_payload_that_is_not_logged_is_null(path: Path) -> None:
    write(path, [ended(1, payload="")])
    assert events(path)[0][7] is None


def test_a_time_is_found_without_unfolding_the_whole_log(path: Path) -> None:
    write(path, [])
    recent = "id > strftime('%s', 'now', '-1 hour') * 1000000"
    plan = plan_of(path, f"SELECT * FROM activity_log WHERE {recent} ORDER BY id")
    assert plan[0] == "SEARCH block USING INTEGER PRIMARY KEY (rowid>?)"
    assert not [step for step in plan if "TEMP B-TREE" in step]


def test_the_latest_events_are_found_without_sorting_the_log(path: Path) -> None:
    write(path, [])
    plan = plan_of(path, "SELECT * FROM activity_log ORDER BY id DESC LIMIT 9")
    assert not [step for step in plan if "TEMP B-TREE" in step]


def plan_of(path: Path, query: str) -> list[str]:
    return [row[3] for row in select(path, f"EXPLAIN QUERY PLAN {query}")]


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="needs the sqlite3 command")
def test_the_sqlite3_command_reads_the_log_while_it_is_open(path: Path) -> None:
    file = JournalFile(path)
    file.write(batch([ended(1, "m")]))
    query = "SELECT event, message_id FROM activity_log"
    shown = subprocess.run(["sqlite3", path, query], capture_output=True, text=True, check=True)
    file.close()
    assert shown.stdout.split() == [
        "send_start|m",
        "process_start|m",
        "process_finish|m",
        "send_finish|m",
    ]
