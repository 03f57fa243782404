"""Links in the place of folders: workspaces do not follow them."""

from __future__ import annotations

from pathlib import Path

import pytest

from busd.keeper.log import (
    FILE_NAME,
)
from busd_plugins.bub.chats import Chat
from busd_plugins.bub.starting import FOLDER, folder_name, make_workspace, remove_leftovers

CHAT = Chat("telegram", "1")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that belongs to somebody else, with a file that looks like a log."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / FILE_NAME).write_text("secret\n")
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def test_workspaces_are_not_made_behind_a_link(state: Path, elsewhere: Path) -> None:
    (state / FOLDER).symlink_to(elsewhere)
    with pytest.raises(OSError):
        make_workspace(state, CHAT, {})
    assert contents(elsewhere) == {FILE_NAME: b"secret\n"}


def test_leftovers_are_not_removed_behind_a_link(state: Path, elsewhere: Path) -> None:
    (elsewhere / ".removed-x").mkdir()
    (state / FOLDER).symlink_to(elsewhere)
    remove_leftovers(state)
    assert (elsewhere / ".removed-x").is_dir()


def test_a_workspace_that_is_a_link_is_not_used(state: Path, elsewhere: Path) -> None:
    (state / FOLDER).mkdir()
    (state / FOLDER / folder_name(CHAT)).symlink_to(elsewhere)
    with pytest.raises(OSError):
        make_workspace(state, CHAT, {"a": 1})
    assert contents(elsewhere) == {FILE_NAME: b"secret\n"}


@pytest.mark.parametrize("name", ["data", "logs"])
def test_a_workspace_with_a_link_in_place_of_a_folder_is_not_used(
    state: Path, elsewhere: Path, name: str
) -> None:
    workspace = make_workspace(state, CHAT, {})
    (workspace / name).rmdir()
    (workspace / name).symlink_to(elsewhere)
    with pytest.raises(OSError):
        make_workspace(state, CHAT, {})
