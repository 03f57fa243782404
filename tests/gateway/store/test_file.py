"""The file of the store: private, checked, moved aside if damaged, left alone if foreign."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from busd.errors import ConfigError
from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import Kept, StoreFailed, UnknownConversation
from tests.gateway.store.opened import Opened, words


def closed_file(path: Path, count: int = 1) -> str:
    """Leave a file with some entries; return the session id of its conversation."""
    store = Opened(path)
    session = store.create()
    store.keep(session, *(words(str(number), "x" * 500) for number in range(count)))
    store.close()
    return session


def test_only_this_user_may_read_the_file(store: Opened, path: Path) -> None:
    store.keep(store.create(), words("a"))
    files = [path.parent, *path.parent.iterdir()]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o700, 0o600}
    assert len(files) == 4  # with -wal and -shm


def test_a_commit_waits_for_the_disk(store: Opened) -> None:
    db = store.file.open()
    assert db.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    assert db.execute("PRAGMA synchronous").fetchall() == [(2,)]  # FULL


def test_a_link_in_the_place_of_the_file_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="it is a symbolic link"):
        Opened(path)


def test_the_file_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="it holds something else; move it away"):
        Opened(path)
    assert path.read_bytes() == before


def test_a_file_of_another_version_is_refused_and_left_alone(path: Path) -> None:
    closed_file(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="its schema is 99, this one knows 1"):
        Opened(path)
    assert path.read_bytes() == before


@pytest.mark.skipif(not os.geteuid(), reason="root may write to any file")
def test_a_file_that_may_not_be_written_is_the_operators_to_mend(path: Path) -> None:
    closed_file(path)
    path.parent.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot open the conversations"):
        Opened(path)
    path.parent.chmod(0o700)


def test_a_file_that_is_no_database_is_moved_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    with capture_logs() as logs:
        store = Opened(path)
        store.keep(store.create(), words("a"))
        store.close()
    [aside] = path.parent.glob("gateway.db.corrupt-*")
    assert aside.read_bytes() == b"no database" * 1000
    assert [line["event"] for line in logs] == ["store.moved_aside"]


def test_a_damaged_page_is_found_by_the_check(path: Path) -> None:
    session = closed_file(path, 300)
    content = bytearray(path.read_bytes())
    content[150_000:170_000] = b"\xff" * 20_000
    path.write_bytes(content)
    store = Opened(path)
    with capture_logs() as logs:
        store.file.check()
    assert [line["event"] for line in logs] == ["store.moved_aside"]
    with pytest.raises(UnknownConversation):
        store.keep(session, words("a"))
    assert store.keep(store.create(), words("a")) == [1]
    store.close()
    assert len(list(path.parent.glob("gateway.db.corrupt-*"))) == 1


def test_damage_that_an_operation_comes_upon_fails_it_and_the_next_one_succeeds(
    path: Path,
) -> None:
    session = closed_file(path, 300)
    content = bytearray(path.read_bytes())
    content[150_000:] = b"\xff" * (len(content) - 150_000)
    path.write_bytes(content)
    store = Opened(path)
    with capture_logs() as logs, pytest.raises(StoreFailed):
        store.names(session)
    assert [line["event"] for line in logs] == ["store.failed", "store.moved_aside"]
    store.create()
    assert not store.file.is_failing
    store.close()


def test_a_file_that_somebody_deletes_is_created_again(store: Opened, path: Path) -> None:
    session = store.create()
    path.unlink()
    with capture_logs() as logs, pytest.raises(UnknownConversation):
        store.keep(session, words("a"))
    assert [line["event"] for line in logs] == ["store.file_lost"]
    store.keep(store.create(), words("a"))
    assert path.exists()


def test_another_program_that_writes_makes_an_operation_fail_without_naming_the_path(
    store: Opened, path: Path
) -> None:
    session = store.create()
    store.file.open().execute("PRAGMA busy_timeout = 10").fetchall()
    with closing(sqlite3.connect(path, isolation_level=None)) as other, capture_logs() as logs:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed) as caught:
            store.keep(session, words("a"))
        other.execute("ROLLBACK")
        assert store.keep(session, words("a")) == [1]
    assert str(caught.value) == (
        "the gateway cannot use its disk now (database is locked); try again later"
    )
    assert [line["event"] for line in logs] == ["store.failed", "store.recovered"]


def test_an_operation_that_raises_something_does_not_harm_the_others(store: Opened) -> None:
    session = store.create()

    def keep_and_fail(s: Store) -> None:
        s.keep(session, words("b"))
        raise LookupError("ours")

    def keep(name: str) -> object:
        return lambda s: s.keep(session, words(name))

    operations = [
        keep("a"),
        keep_and_fail,
        lambda s: s.find(1 << 70, ""),
        keep("\ud800"),
        keep("c"),
    ]
    outcomes = store.file.execute(operations)  # type: ignore[arg-type]
    problems = [type(getattr(each, "exception", None)).__name__ for each in outcomes]
    assert problems == [
        "NoneType",
        "LookupError",
        "OverflowError",
        "UnicodeEncodeError",
        "NoneType",
    ]
    assert isinstance(outcomes[4], Kept)
    assert outcomes[4].entry.number == 2
    assert store.names(session) == ["a", "c"]


def test_the_limits_of_a_store_may_change_between_two_starts(path: Path) -> None:
    session = closed_file(path, 10)
    store = Opened(path, StoreLimits(entries=3))
    assert len(store.names(session)) == 10
    store.keep(session, words("new"))
    assert store.names(session) == ["8", "9", "new"]
    store.close()
