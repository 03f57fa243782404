"""Files of the state directory that are not ours: links, pipes, folders that others can write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ops.test_state import serve


@pytest.mark.parametrize(
    ("mode", "complaint"),
    [
        (0o777, "everybody may write {state}; run: chmod go-w {state}"),
        (0o1777, "everybody may write {state}; run: chmod go-w {state}"),
        (0o770, "group {gid} may write {state}; run: chmod g-w {state}"),
    ],
)
def test_a_state_directory_that_others_can_write_is_not_used(
    tmp_path: Path, mode: int, complaint: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    ended = serve(state)
    said = complaint.format(state=state, gid=state.stat().st_gid)
    assert (ended.returncode, ended.stderr) == (
        78,
        f"busd: cannot use state directory {state}: {said}\n",
    )
    assert list(state.iterdir()) == []


def test_a_state_directory_below_one_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    ended = serve(above / "state")
    assert ended.returncode == 78
    assert f"everybody may write {above};" in ended.stderr


@pytest.mark.parametrize(
    "name", ["busd.lock", "token", "tokens.json", "journal.db", "journal.db-wal", "journal.db-shm"]
)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_link_in_place_of_a_file_is_not_followed(
    tmp_path: Path, name: str, is_there: bool
) -> None:
    state, target = tmp_path / "state", tmp_path / "target"
    state.mkdir(mode=0o700)
    if is_there:
        target.write_bytes(b"busd_" + b"x" * 40 if name == "token" else b"")
        target.chmod(0o600)
    before = target.read_bytes() if is_there else None
    (state / name).symlink_to(target)
    ended = serve(state)
    assert ended.returncode == 78
    assert ended.stderr.count("\n") == 1
    assert "symbolic link" in ended.stderr
    assert (target.read_bytes() if target.exists() else None) == before
    assert (state / name).is_symlink()


@pytest.mark.parametrize("name", ["token", "tokens.json", "journal.db"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.mkfifo(state / name, 0o600)
    ended = serve(state)
    assert ended.returncode == 78
    assert "it is not a regular file" in ended.stderr
