"""Workspaces: one folder for each chat, and none outside."""

from __future__ import annotations

import json
import os
import stat
import venv
from itertools import combinations
from pathlib import Path

import pytest

from busd_plugins.bub.chats import Chat
from busd_plugins.bub.starting import folder_name, make_workspace, put_aside

STRANGE = [
    "",
    ".",
    "..",
    "../../etc",
    "..%2F..%2Fetc",
    "%2E%2E",
    "/etc/passwd",
    "a/b",
    "a:b",
    "b-a:b",
    "-a:b",
    "a\0b",
    "a\nb",
    "a b",
    "~",
    "-rf",
    "ä",
    "a\u0308",
    "\ud800",
    "\ud801",
    "🙂" * 50,
    "x" * 10_000,
    "x" * 9_999 + "y",
    "x" * 300,
]


@pytest.mark.parametrize("chat_id", STRANGE, ids=range(len(STRANGE)))
def test_no_chat_id_leaves_the_workspaces_folder(chat_id: str, tmp_path: Path) -> None:
    folder = make_workspace(tmp_path, Chat("telegram", chat_id), {})
    assert folder.resolve().parent == (tmp_path / "workspaces").resolve()
    assert len(os.fsencode(folder.name)) <= 255
    assert folder.name.isascii()
    assert folder.name.isprintable()


def test_different_chats_never_share_a_folder() -> None:
    channels = ("telegram", "a", "a%3Ab", "a-b", "a%2Db")
    chats = [Chat(channel, each) for channel in channels for each in STRANGE]
    for one, other in combinations(chats, 2):
        assert folder_name(one) != folder_name(other)


def test_a_usual_chat_id_is_the_name_of_its_folder() -> None:
    assert folder_name(Chat("telegram", "-100123")) == "telegram--100123"


@pytest.mark.parametrize("chat_id", STRANGE, ids=range(len(STRANGE)))
def test_no_workspace_has_the_path_separator_in_its_name(chat_id: str) -> None:
    assert os.pathsep not in folder_name(Chat("telegram", chat_id))


@pytest.mark.parametrize("chat_id", ["123", "-100123", "a:b", "../x"])
def test_a_virtual_environment_can_be_made_in_a_workspace(chat_id: str, tmp_path: Path) -> None:
    folder = make_workspace(tmp_path, Chat("telegram", chat_id), {})
    venv.create(folder / "venv", with_pip=False)


def test_a_session_keeps_the_workspace_that_its_record_names(tmp_path: Path) -> None:
    old = tmp_path / "workspaces" / "telegram:1"
    (old / "data").mkdir(parents=True)
    (old / "data" / "kept").write_text("here")
    folder = make_workspace(tmp_path, Chat("telegram", "1"), {}, str(old))
    assert (folder / "data" / "kept").read_text() == "here"
    assert os.listdir(tmp_path / "workspaces") == ["telegram:1"]  # noqa: PTH208 - names


def test_a_workspace_is_private_and_says_whose_it_is(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path, Chat("telegram", "1"), {"client_id": "agent:x"})
    for each in (folder.parent, folder, folder / "data", folder / "logs"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    config = folder / "config.json"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert json.loads(config.read_text()) == {"client_id": "agent:x"}


def test_making_a_workspace_again_keeps_what_is_in_it(tmp_path: Path) -> None:
    chat = Chat("telegram", "1")
    kept = make_workspace(tmp_path, chat, {}) / "data" / "kept"
    kept.write_text("here")
    make_workspace(tmp_path, chat, {"new": True})
    assert kept.read_text() == "here"


def test_a_workspace_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "workspaces").mkdir()
    blocked = tmp_path / "workspaces" / "telegram-1"
    blocked.write_text("a file")
    with pytest.raises(OSError, match="exists"):
        make_workspace(tmp_path, Chat("telegram", "1"), {})
    assert [each.name for each in (tmp_path / "workspaces").iterdir()] == ["telegram-1"]


@pytest.mark.parametrize("place", [".", "..", "other", "workspaces", "workspaces/a/b"])
def test_only_a_workspace_is_ever_put_aside(place: str, tmp_path: Path) -> None:
    (tmp_path / "workspaces/a/b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    assert put_aside(tmp_path, tmp_path / place) is None
    assert (tmp_path / "workspaces/a/b").is_dir()


def test_what_a_worker_has_put_in_the_way_is_neither_followed_nor_waited_for(
    tmp_path: Path,
) -> None:
    folder = make_workspace(tmp_path, Chat("telegram", "1"), {})
    (tmp_path / "victim").write_text("precious")
    (folder / ".config.json.new").symlink_to(tmp_path / "victim")
    make_workspace(tmp_path, Chat("telegram", "1"), {"a": 1})
    assert (tmp_path / "victim").read_text() == "precious"
    os.mkfifo(folder / ".config.json.new")
    reader = os.open(folder / ".config.json.new", os.O_RDONLY | os.O_NONBLOCK)
    try:
        make_workspace(tmp_path, Chat("telegram", "1"), {"a": 2})
    finally:
        os.close(reader)
    assert (folder / "config.json").is_file()
    assert json.loads((folder / "config.json").read_text()) == {"a": 2}
