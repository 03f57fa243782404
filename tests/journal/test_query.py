"""Reading the activity log: traces of messages, and the tail of the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from busd.bus.address import compile_glob
from busd.errors import ConfigError
from busd.journal.entries import DeliveryRecord, LogEntry
from busd.journal.file import JournalFile
from busd.journal.query import glob_of, literal_part, tail, trace
from busd.rpc.envelope import encode
from tests.journal.rows import T0, batch, ended, in_flight, no_route

START, QUARTER, HALF = (f"2025-10-09T08:53:20.{part}Z" for part in ("000000", "250000", "500000"))


class Written:
    """A log whose clock a test can set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = T0
        self.file = JournalFile(path, lambda: self.now)

    def names(self, entries: list[LogEntry]) -> list[str]:
        return [entry.message_id for entry in entries]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Written]:
    written = Written(tmp_path / "with space & ?" / "journal.db")
    yield written
    written.file.close()


# Traces


def test_a_trace_tells_who_sent_what_to_whom_and_how_long_it_took(log: Written) -> None:
    log.file.write(batch([ended(1, "m", rpc_id=7, answered=T0 + 0.5)]))
    [attempt], _ = trace(log.path, "m")
    assert msgspec.to_builtins(attempt) == {
        "messageId": "m",
        "rpcId": "7",
        "from": "tg:1",
        "to": "agent:w",
        "status": "ok",
        "sendStart": START,
        "sendFinish": HALF,
        "ms": 500.0,
        "payload": '{"text":"hi"}',
        "deliveries": [
            {
                "peer": "agent:w",
                "status": "ok",
                "error": None,
                "processStart": START,
                "processFinish": HALF,
                "ms": 500.0,
            }
        ],
    }


def test_a_trace_has_the_answer_of_every_addressee(log: Written) -> None:
    log.file.write(
        batch(
            [
                ended(1, "m", to="all", peer="b", is_first=False, is_last=False, payload=""),
                ended(
                    1, "m", to="all", peer="a", answered=T0 + 0.5, status="failed", error="no time"
                ),
            ]
        )
    )
    [attempt], _ = trace(log.path, "m")
    assert (attempt.status, attempt.ms, attempt.payload) == ("failed", 500.0, '{"text":"hi"}')
    assert attempt.deliveries == [
        DeliveryRecord("a", "failed", "no time", START, HALF, 500.0),
        DeliveryRecord("b", "ok", None, START, QUARTER, 250.0),
    ]


def test_a_trace_has_every_attempt_the_earliest_first(log: Written) -> None:
    log.file.write(batch([ended(2, "m", start=T0 + 1, answered=T0 + 1.25, rpc_id="again")]))
    log.file.write(batch([no_route(1, "m")]))
    attempts, count = trace(log.path, "m")
    assert count == 2
    assert [(each.rpc_id, each.status, len(each.deliveries)) for each in attempts] == [
        ("1", "no route", 0),
        ("again", "ok", 1),
    ]


def test_a_trace_of_what_is_in_flight_is_open_at_its_end(log: Written) -> None:
    log.file.write(batch([], [in_flight(1, "m")]))
    [attempt], _ = trace(log.path, "m")
    assert (attempt.status, attempt.send_finish, attempt.ms) == ("in flight", None, None)
    assert attempt.deliveries == [DeliveryRecord("agent:w", "in flight", None, START, None, None)]


def test_a_message_that_is_not_in_the_log_has_no_trace(log: Written) -> None:
    assert trace(log.path, "unheard of") == ([], 0)


def test_without_a_log_there_is_nothing_to_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with pytest.raises(ConfigError) as problem:
        trace(path, "m")
    expected = f"cannot read the activity log {path}: unable to open database file"
    assert str(problem.value) == expected
    assert not path.exists()


def test_the_log_can_be_read_when_nobody_writes_it(log: Written) -> None:
    log.file.write(batch([ended(1, "m")]))
    log.file.close()
    assert trace(log.path, "m")[1] == len(tail(log.path)) == 1


# The tail


def test_the_tail_has_the_latest_deliveries_in_the_order_they_were_written(log: Written) -> None:
    for first in range(0, 9, 3):
        log.file.write(batch(ended(call) for call in range(first, first + 3)))
    assert log.names(tail(log.path, limit=4)) == ["m5", "m6", "m7", "m8"]


def test_a_line_of_the_tail_tells_all_about_one_delivery(log: Written) -> None:
    log.file.write(batch([ended(1, "m", to="all", peer="w", status="failed", error="busy")]))
    [entry] = tail(log.path)
    assert msgspec.to_builtins(entry) == {
        "id": T0 * 1e6,
        "ts": START,
        "messageId": "m",
        "rpcId": "1",
        "from": "tg:1",
        "to": "all",
        "peer": "w",
        "status": "failed",
        "error": "busy",
        "ms": 250.0,
        "payload": '{"text":"hi"}',
    }


def test_a_message_that_nobody_was_there_for_has_no_peer(log: Written) -> None:
    log.file.write(batch([no_route(1)]))
    assert [entry.peer for entry in tail(log.path)] == [None]


def test_the_tail_can_be_limited_to_addresses(log: Written) -> None:
    log.file.write(
        batch(
            [
                ended(1, "a", sender="tg:1", to="agent:x"),
                ended(2, "b", sender="tg:2", to="agent:y"),
                ended(3, "c", sender="agent:x", to="tg:1"),
            ]
        )
    )
    assert log.names(tail(log.path, to="agent:*")) == ["a", "b"]
    assert log.names(tail(log.path, sender="tg:?", to="*:y")) == ["b"]
    assert log.names(tail(log.path, sender="agent:x")) == ["c"]
    assert log.names(tail(log.path, to="tg:")) == []


def test_the_tail_can_begin_at_a_time(log: Written) -> None:
    for number in range(4):
        log.now = T0 + number
        log.file.write(batch([ended(number)]))
    assert log.names(tail(log.path, since=T0 + 2)) == ["m2", "m3"]
    assert log.names(tail(log.path, since=T0 + 2, limit=1)) == ["m3"]


def test_whoever_follows_sees_each_delivery_once_when_it_has_ended(log: Written) -> None:
    log.file.write(batch([ended(1)], [in_flight(2), in_flight(3)]))
    seen = tail(log.path, after_id=0)
    assert log.names(seen) == ["m1"]
    log.file.write(batch([ended(3), ended(4)]))
    log.file.write(batch([ended(2)]))
    first = tail(log.path, after_id=seen[-1].id, limit=2)
    assert log.names(first) == ["m3", "m4"]
    assert log.names(tail(log.path, after_id=first[-1].id, limit=2)) == ["m2"]


PATTERNS = st.text('ab[]^-*?."\\世', max_size=8)


@given(PATTERNS, st.lists(st.text("ab[]^-*?.世", max_size=8)))
def test_patterns_match_in_the_log_as_they_do_on_the_bus(pattern: str, texts: list[str]) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        for text in [*texts, pattern]:
            [found] = db.execute("SELECT ? GLOB ?", (text, glob_of(pattern))).fetchone()
            assert bool(found) == bool(compile_glob(pattern).fullmatch(text))
            assert not found or literal_part(pattern) in encode(text).decode()
