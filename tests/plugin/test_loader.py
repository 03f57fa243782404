"""Finding and importing plugins: in folders, and in installed packages."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from busd.plugin.loader import (
    BadPlugin,
    Candidate,
    LoadedPlugin,
    bundled_folder,
    default_folders,
    find_candidates,
    load,
    use_folders,
)
from tests.plugin.sources import GREET


@pytest.fixture(autouse=True)
def only_bundled_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    yield
    use_folders([bundled_folder()])


def find(name: str, folders: tuple[str, ...] = ()) -> list[Candidate]:
    return [each for each in find_candidates(folders) if each.name == name]


def load_now(candidate: Candidate) -> LoadedPlugin | BadPlugin:
    return anyio.run(load, candidate, 10.0)


def test_the_bundled_folder_is_there_and_has_the_bub_plugin() -> None:
    [bub] = find("bub")
    assert bub.origin == str(bundled_folder() / "bub")
    assert bub.module == "busd_plugins.bub"
    assert bub.danger == ""


def test_the_users_folder_is_beside_its_settings(tmp_path: Path) -> None:
    own = tmp_path / "config/busd/plugins"
    assert default_folders() == [bundled_folder(), own]
    own.mkdir(parents=True)
    (own / "mine_of_test.py").write_text(GREET)
    [mine] = find("mine_of_test")
    loaded = load_now(mine)
    assert isinstance(loaded, LoadedPlugin)
    assert list(loaded.types) == ["hello"]


def test_the_system_service_has_its_folder_beside_its_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("CONFIGURATION_DIRECTORY", "/etc/busd")
    assert default_folders()[1] == Path("/etc/busd/plugins")


def test_a_folder_that_is_not_there_is_no_mistake(tmp_path: Path) -> None:
    before = find_candidates()
    assert find_candidates([str(tmp_path / "nowhere")]) == before


def test_what_is_no_module_is_passed_over(tmp_path: Path) -> None:
    for name in ("README.md", "my-notes.py", ".hidden.py", "_private.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "data").mkdir()
    assert find_candidates([str(tmp_path)]) == find_candidates()


def test_a_plugin_of_an_installed_package_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_module.py").write_text(GREET.replace("plugin", "thing"))
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[busd.plugins]\ntheirs = their_module:thing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    [theirs] = find("theirs")
    assert theirs.origin == "entry point their_module:thing"
    loaded = load_now(theirs)
    assert isinstance(loaded, LoadedPlugin)
    assert loaded.plugin.name == "greet"


def test_a_link_to_somewhere_unsafe_is_unsafe(tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    target.write_text(GREET)
    target.chmod(0o666)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "linked.py").symlink_to(target)
    [linked] = find("linked", (str(folder),))
    assert linked.danger.startswith("everybody may write ")
    assert load_now(linked) == BadPlugin(linked, linked.danger)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look anywhere")
def test_a_folder_that_may_not_be_looked_into_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0)
    try:
        [found] = find("inner", (str(closed / "inner"),))
        assert found.danger.startswith("cannot look at ")
    finally:
        closed.chmod(0o755)
