"""The checks of the crash test find what they are for."""

from __future__ import annotations

import random
from pathlib import Path

from tests.crash.faulty import tear_log
from tests.crash.invariants import check_records
from tests.crash.records import RecordFile


def violations(folder: Path, told: dict[int, str], received: list[str], *dead: str) -> list[str]:
    """Return what is wrong if a sender was told this of its messages; "" is no answer."""
    sent, got = RecordFile(folder / "app:s.sent"), RecordFile(folder / "agent:w.got")
    for number in told:
        sent.add("sent", "agent:w", number, f"m{number}")
    for number, state in told.items():
        if state:
            sent.add("answer", f"m{number}", state)
    for line in received:
        what, name, attempt = line.split()
        rest = ("app:s", "agent:w", name) if what == "processed" else ()
        got.add(what, f"m{name}", attempt, *rest)
    return check_records(folder, set(dead)).violations


def test_no_violation_is_found_where_none_is(tmp_path: Path) -> None:
    told = {1: "acked", 2: "kept", 3: "retrying", 4: "refused", 5: "kept"}
    received = ["processed 1 1", "postponed 2 1", "processed 3 1", "processed 3 2"]
    received += ["declined 4 1", "processed 2 2", "declined 5 1"]
    assert violations(tmp_path, told, received, "m5") == []


def test_a_message_that_was_kept_and_never_processed_is_lost(tmp_path: Path) -> None:
    assert violations(tmp_path, {1: "kept", 2: "acked"}, []) == ["2 lost: m1 (kept), m2 (acked)"]


def test_a_message_that_was_acked_and_declined_is_lost(tmp_path: Path) -> None:
    assert violations(tmp_path, {1: "acked"}, ["declined 1 1"], "m1") == ["1 lost: m1 (acked)"]


def test_a_second_processing_is_flagged(tmp_path: Path) -> None:
    received = ["processed 1 1", "processed 1 1"]
    assert violations(tmp_path, {1: "acked"}, received) == ["1 unflagged: m1"]


def test_the_order_is_that_of_the_first_processings(tmp_path: Path) -> None:
    told = {1: "acked", 2: "acked", 3: "acked"}
    received = ["processed 1 1", "processed 3 1", "processed 1 2", "processed 2 1"]
    assert violations(tmp_path, told, received) == ["1 out_of_order: m2 after 3"]


def test_an_answer_that_is_not_true_is_found(tmp_path: Path) -> None:
    told = {1: "refused", 2: "no route", 3: ""}
    found = violations(tmp_path, told, ["processed 1 1", "processed 2 1", "processed 3 1"])
    assert found == ["2 contradicted: m1 (refused), m2 (no route)", "1 unanswered: m3"]


def test_a_dead_letter_that_nobody_declined_was_given_up(tmp_path: Path) -> None:
    found = violations(tmp_path, {1: "kept"}, ["processed 1 1"], "m1")
    assert found == ["1 given_up: m1"]


def test_a_torn_log_has_only_a_part_of_the_last_write(tmp_path: Path) -> None:
    path, log = tmp_path / "mail.db", tmp_path / "mail.db-wal"
    for seed in range(50):
        (tmp_path / "mail.db-wal.before").write_bytes(b"old old old")
        log.write_bytes(b"old new new new")
        tear_log(path, random.Random(seed))
        torn = log.read_bytes()
        assert torn.startswith(b"old ")
        assert torn != b"old new new new"
    tear_log(path, random.Random(0))  # nothing was written meanwhile
    assert log.read_bytes() == torn
