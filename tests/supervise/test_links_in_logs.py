"""Links in the place of folders: the logs of a worker do not follow them."""

from __future__ import annotations

from pathlib import Path

import pytest

from busd.keeper.log import (
    FILE_NAME,
    MAX_FILE_BYTES,
    WorkerLog,
    make_log,
    read_last_lines,
    trim_log,
)
from busd.supervise.logs import read_log


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that belongs to somebody else, with a file that looks like a log."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / FILE_NAME).write_text("secret\n")
    return folder


@pytest.fixture
def workspace(tmp_path: Path, elsewhere: Path) -> Path:
    """A workspace whose worker has put a link in the place of its logs."""
    made = tmp_path / "workspace"
    made.mkdir()
    (made / "logs").symlink_to(elsewhere)
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.mark.anyio
async def test_logs_behind_a_link_are_not_shown(workspace: Path) -> None:
    assert await read_log(workspace, 10, None) == []
    assert read_last_lines(workspace / "logs", 10) == []


def test_nothing_is_written_to_logs_behind_a_link(workspace: Path, elsewhere: Path) -> None:
    log = WorkerLog(workspace / "logs")
    log.write(b"printed\n")
    log.close()
    with pytest.raises(OSError):
        make_log(workspace)
    assert contents(elsewhere) == {FILE_NAME: b"secret\n"}


def test_logs_behind_a_link_are_not_trimmed(workspace: Path, elsewhere: Path) -> None:
    (elsewhere / FILE_NAME).write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    trim_log(workspace / "logs")
    assert list(contents(elsewhere)) == [FILE_NAME]
    assert (elsewhere / FILE_NAME).stat().st_size == MAX_FILE_BYTES + 1
