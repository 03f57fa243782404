"""Damaged files, files of others, full queues, values that cannot be stored."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from busd.bus.mail import Box, Kept, MailLimits, StoreBusy, StoreFailed, Totals
from busd.bus.mail_store import Bury, Claim, Expire, Keep, ListDead, Read
from busd.errors import ConfigError
from busd.mail.engine import fair_share
from busd.mail.file import MailFile
from busd.mail.sqlite import SqliteMailStore
from tests.mail.stores import do, mail
from tests.mail.waiting import Waiting


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "mail.db"


@pytest.fixture
def subject(path: Path) -> Iterator[Waiting]:
    subject = Waiting(path)
    yield subject
    subject.close()


def closed_file(path: Path, count: int) -> bytes:
    """Return the content of a file with some mail."""
    subject = Waiting(path)
    subject.submit_all([Keep(mail(str(number))) for number in range(count)])
    subject.close()
    return path.read_bytes()


def test_only_this_user_may_read_the_file(subject: Waiting, path: Path) -> None:
    do(subject, Keep(mail()))
    files = [path.parent, *path.parent.iterdir()]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o700, 0o600}
    assert len(files) == 4  # with -wal and -shm


def test_each_commit_is_synced_before_its_outcomes_are_delivered(path: Path) -> None:
    file = MailFile(path, MailLimits())
    file.write([Keep(mail())])
    assert file._db
    read = [file._db.execute(f"PRAGMA {name}") for name in ("journal_mode", "synchronous")]
    assert [cursor.fetchone()[0] for cursor in read] == ["wal", 2]  # FULL: each commit is an fsync
    file.close()


def test_a_link_in_the_place_of_the_file_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="it is a symbolic link"):
        Waiting(path)


def test_the_file_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="it holds something else; move it away"):
        Waiting(path)
    assert path.read_bytes() == before


def test_the_file_of_another_version_is_refused(path: Path) -> None:
    closed_file(path, 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="schema is 99"):
        Waiting(path)


@pytest.mark.parametrize("where", ["header", "page"])
def test_a_damaged_file_is_moved_aside_and_kept(path: Path, where: str) -> None:
    content = bytearray(closed_file(path, 500))
    begin, end = (0, 100) if where == "header" else (len(content) // 2, len(content) - 4096)
    content[begin:end] = b"x" * (end - begin)
    path.write_bytes(content)
    with capture_logs() as logs:
        subject = Waiting(path)
        assert do(subject, Keep(mail())).is_new
        assert subject.store.totals.count == 1
        subject.close()
    [aside] = path.parent.glob("mail.db.corrupt-*Z")
    assert content[begin:end] in aside.read_bytes()
    assert len(aside.read_bytes()) == len(content)
    assert [(line["event"], line["log_level"], line["to"]) for line in logs] == [
        ("mail.moved_aside", "error", str(aside))
    ]


def test_a_file_that_is_deleted_is_reported_and_replaced(subject: Waiting, path: Path) -> None:
    do(subject, Keep(mail("a")))
    for each in path.parent.iterdir():
        each.unlink()
    with capture_logs() as logs:
        second = do(subject, Keep(mail("b")))
    assert [(line["event"], line["mail"]) for line in logs] == [("mail.file_lost", 1)]
    assert second.id > 1
    assert subject.store.totals.count == 1


def test_the_queue_is_bounded_and_says_so_at_once(path: Path) -> None:
    subject = Waiting(path, MailLimits(waiting_count=3))
    outcomes: list[Any] = []
    for number in range(5):
        subject.store.submit(Keep(mail(str(number))), outcomes.append)
    assert outcomes == [StoreBusy(3)] * 2
    subject.store.submit(Claim("agent:a", "h1"), outcomes.append)  # what empties it is let in
    while subject.store.waiting:
        subject.deliver()
    assert [type(each) for each in outcomes[2:]] == [Kept, Kept, Kept, Box]
    subject.close()


def test_the_queue_is_bounded_in_bytes(path: Path) -> None:
    subject = Waiting(path, MailLimits(waiting_bytes=150))
    outcomes: list[Any] = []
    for number in range(3):
        subject.store.submit(Keep(mail(str(number), payload=b"x" * 100)), outcomes.append)
    assert outcomes == [StoreBusy(150)]
    while subject.store.waiting:
        subject.deliver()
    assert do(subject, Keep(mail())).is_new
    subject.close()


def test_closing_delivers_what_waits(path: Path) -> None:
    subject = Waiting(path)
    outcomes: list[Any] = []
    for number in range(100):
        subject.store.submit(Keep(mail(str(number))), outcomes.append)
    subject.close()
    assert [each.message_id for each in outcomes] == [str(number) for number in range(100)]


def test_a_loop_that_has_ended_does_not_hold_up_the_end(path: Path) -> None:
    has_ended = False

    def schedule(_: object) -> None:
        if has_ended:
            raise RuntimeError("the loop is closed")

    outcomes: list[Any] = []
    store = SqliteMailStore(path, schedule, MailLimits())
    store.submit(Keep(mail()), outcomes.append)
    has_ended = True
    assert store.close(20)
    assert len(outcomes) == 1


def test_a_callback_that_raises_does_not_cost_others_their_outcomes(subject: Waiting) -> None:
    outcomes: list[Any] = []

    def broken(_: object) -> None:
        raise ValueError

    with capture_logs() as logs:
        subject.store.submit(Keep(mail("a")), broken)
        subject.store.submit(Keep(mail("b")), broken)
        subject.store.submit(Keep(mail("c")), outcomes.append)
        while subject.store.waiting:
            subject.deliver()
    assert [each.message_id for each in outcomes] == ["c"]
    assert [line["event"] for line in logs] == ["mail.broken"] * 2


def test_a_value_that_cannot_be_stored_fails_alone(subject: Waiting) -> None:
    with capture_logs():
        first, bad, last = subject.submit_all(
            [Keep(mail("a")), Keep(mail("\ud800")), Keep(mail("b"))]
        )
    assert isinstance(bad, StoreFailed)
    box = do(subject, Claim("agent:a", "h1"))
    assert [each.id for each in do(subject, Read(box))] == [first.id, last.id]
    assert not subject.store.is_failing


def test_a_commit_that_fails_fails_all_of_it_and_changes_nothing(
    subject: Waiting, path: Path
) -> None:
    """Another program that writes to the file makes ours wait, then give up."""
    kept = do(subject, Keep(mail("a")))
    before = subject.store.totals
    box = do(subject, Claim("agent:a", "h1"))
    assert isinstance(subject.store, SqliteMailStore)
    subject.store._file.open().execute("PRAGMA busy_timeout = 10").fetchall()
    with closing(sqlite3.connect(path, isolation_level=None)) as other, capture_logs() as logs:
        other.execute("BEGIN IMMEDIATE")
        # The first is a batch, the others are the next one.
        failed = subject.submit_all(
            [Keep(mail("b")), Claim("agent:b", "h1"), Bury(box, kept.id, "bad", 1.0)]
        )
        assert subject.submit_all([Read(box)])[0][0].message_id == "a"  # reading needs no lock
        other.execute("ROLLBACK")
    assert {type(each) for each in failed} == {StoreFailed}
    assert subject.store.totals == before == Totals(1, 13)
    do(subject, Claim("agent:b", "h2"))  # the first claim came to nothing
    do(subject, Keep(mail("b")))
    assert not subject.store.is_failing
    assert [line["event"] for line in logs][:1] == ["mail.failed"]


@pytest.mark.skipif(not os.geteuid(), reason="root may write to any file")
def test_a_file_that_may_not_be_written_is_the_operators_to_mend(path: Path) -> None:
    closed_file(path, 1)
    path.parent.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot open the mailboxes"):
        Waiting(path)
    path.parent.chmod(0o700)


def test_whose_dead_letters_there_are_is_known_after_a_restart(path: Path) -> None:
    limits = MailLimits(dead_count=2)
    for number, account in enumerate(["uid:1", "uid:2", "uid:2"]):
        subject = Waiting(path, limits)
        do(subject, Keep(mail(str(number), account=account, expires_at=1.0)))
        do(subject, Expire(1.0))
        left = [each.mail.message_id for each in do(subject, ListDead())]
        subject.close()
    assert left == ["0", "2"]


@pytest.mark.parametrize(
    ("counts", "limit", "share"),
    [([1, 4], 3, 2), ([5], 3, 3), ([2, 2], 4, 2), ([9, 9, 9], 10, 3), ([1, 1, 100], 50, 48)],
)
def test_a_fair_share_leaves_as_much_as_possible(counts: list[int], limit: int, share: int) -> None:
    assert fair_share(counts, limit) == share
    assert sum(min(count, share) for count in counts) <= limit
