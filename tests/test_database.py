"""Database files: private, opened again if they are lost, moved aside if they are damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from busd.database import DatabaseFile, Layout
from busd.errors import BusdError, ConfigError

LAYOUT = Layout(
    contents="notes", tables="CREATE TABLE note (words TEXT)", application_id=0x1234, version=2
)


class Notes(DatabaseFile):
    """A file that records what is reported to it."""

    def __init__(self, path: Path, layout: Layout = LAYOUT) -> None:
        self.events: list[str] = []
        super().__init__(path, layout)

    def on_moved(self, aside: str, problem: str) -> None:
        self.events.append(f"moved to {Path(aside).name.rsplit('-', 1)[0]}")

    def on_lost(self) -> None:
        self.events.append("lost")

    def add(self, words: str) -> None:
        with self.transaction() as db:
            db.execute("INSERT INTO note VALUES (?)", (words,))

    def all(self) -> list[str]:
        return [words for (words,) in self.open().execute("SELECT words FROM note")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "notes.db"


def test_only_its_user_can_read_a_file_and_its_folder(path: Path) -> None:
    with closing(Notes(path)) as notes:
        notes.add("one")
        modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
        assert modes == {"notes.db": 0o600, "notes.db-wal": 0o600, "notes.db-shm": 0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_what_was_committed_is_there_after_a_restart(path: Path) -> None:
    with closing(Notes(path)) as notes:
        notes.add("one")
    with closing(Notes(path)) as notes:
        assert notes.all() == ["one"]


@pytest.mark.parametrize(("is_synced", "level"), [(True, 2), (False, 1)])
def test_a_layout_decides_whether_commits_are_synced(
    path: Path, is_synced: bool, level: int
) -> None:
    with closing(Notes(path, msgspec.structs.replace(LAYOUT, is_synced=is_synced))) as notes:
        assert notes.open().execute("PRAGMA synchronous").fetchone() == (level,)


def test_a_transaction_that_fails_changes_nothing(path: Path) -> None:
    with closing(Notes(path)) as notes:
        with pytest.raises(sqlite3.ProgrammingError), notes.transaction() as db:
            db.executemany("INSERT INTO note VALUES (?)", [("one",), ("two", "three")])
        assert notes.all() == []


def test_a_full_disk_fails_a_transaction_and_not_the_next_one(path: Path) -> None:
    with closing(Notes(path)) as notes:
        notes.add("one")
        pages = notes.open().execute("PRAGMA page_count").fetchone()[0]
        notes.open().execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            notes.add("x" * 100_000)
        notes.open().execute("PRAGMA max_page_count = 1000000")
        notes.add("two")
        assert notes.all() == ["one", "two"]


def test_a_file_that_was_deleted_is_created_again(path: Path) -> None:
    with closing(Notes(path)) as notes:
        notes.add("one")
        path.unlink()
        notes.add("two")
        assert notes.all() == ["two"]
        assert notes.events == ["lost"]


def test_a_file_that_is_no_database_is_moved_aside(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 1_000)
    with closing(Notes(path)) as notes:
        assert notes.all() == []
        assert notes.events == ["moved to notes.db.corrupt"]


def test_a_check_moves_a_file_with_a_damaged_page_aside(path: Path) -> None:
    with closing(Notes(path)) as notes:
        for number in range(100):
            notes.add(str(number) * 1_000)
        notes.check()
        assert not notes.events
    with path.open("r+b") as raw:
        raw.seek(5 * 4096)
        raw.write(b"\xff" * 4096)
    with closing(Notes(path)) as notes:
        notes.check()
        assert notes.events == ["moved to notes.db.corrupt"]
        assert notes.all() == []


def test_an_earlier_version_is_moved_aside_if_the_layout_says_so(path: Path) -> None:
    Notes(path, msgspec.structs.replace(LAYOUT, version=1)).close()
    with closing(Notes(path, msgspec.structs.replace(LAYOUT, replaces_older=True))) as notes:
        assert notes.events == ["moved to notes.db.old"]


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")


def _of_version(number: int) -> Callable[[Path], None]:
    return lambda path: Notes(path, msgspec.structs.replace(LAYOUT, version=number)).close()


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_of_another_program, "it holds something else; move it away"),
        (_of_version(1), r"another version of busd wrote it \(its schema is 1, this one knows 2\)"),
        (_of_version(3), r"another version of busd wrote it \(its schema is 3, this one knows 2\)"),
        (_link, "it is a symbolic link"),
        (Path.mkdir, "it is not a regular file"),
    ],
)
def test_what_is_no_file_of_ours_is_refused_and_left_alone(
    path: Path, make: Callable[[Path], None], reason: str
) -> None:
    path.parent.mkdir()
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ConfigError, match=f"^cannot open the notes {path}: {reason}"):
        Notes(path)
    assert not path.is_file() or path.read_bytes() == before


def test_a_full_disk_at_the_start_is_no_mistake_in_the_settings(path: Path) -> None:
    broken = msgspec.structs.replace(
        LAYOUT, tables="PRAGMA max_page_count = 2; CREATE TABLE a (b); CREATE TABLE c (d)"
    )
    with pytest.raises(BusdError, match="full") as problem:
        Notes(path, broken)
    assert not isinstance(problem.value, ConfigError)
