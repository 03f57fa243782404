"""Small files are replaced as a whole, or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from busd.wire.plain_file import write_plain_file


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_file_is_replaced_and_private_by_default(tmp_path: Path, is_synced: bool) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o644)
    write_plain_file(file, b"new", is_synced=is_synced)
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.usefixtures("strict_umask")
def test_a_mode_holds_whatever_the_umask_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_plain_file(file, b"", 0o644)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    file, victim = tmp_path / "file", tmp_path / "victim"
    victim.write_text("old")
    for link in (file, tmp_path / f".file.{os.getpid()}"):
        link.symlink_to(victim)
    write_plain_file(file, b"new")
    assert not file.is_symlink()
    assert file.read_text() == "new"
    assert victim.read_text() == "old"


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        write_plain_file(folder, b"new")
    assert list(tmp_path.iterdir()) == [folder]
