"""Whose files are run as plugins: ours and root's, if nobody else can write them; no bytecode."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from pathlib import Path

import pytest

from busd.plugin.loader import BadPlugin, LoadedPlugin, bundled_folder, use_folders
from tests.plugin.sources import GREET
from tests.plugin.test_loader import find, load_now

GREET_AS_X = GREET.replace('Plugin("greet")', 'Plugin("planted")')


@pytest.fixture(autouse=True)
def only_bundled_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    yield
    for name in [each for each in sys.modules if each.startswith("busd_plugins.mine")]:
        del sys.modules[name]
    use_folders([bundled_folder()])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "above" / "plugins"
    made.mkdir(parents=True)
    (made / "mine.py").write_text(GREET)
    return made


def loaded_from(folder: Path, name: str = "mine") -> LoadedPlugin | BadPlugin:
    [candidate] = find(name, (str(folder),))
    return load_now(candidate)


def compile_into(source: str, target: Path, pretended: Path) -> None:
    """Write bytecode of some source that pretends to be that of another file, as new as it is."""
    other = target.parent / "other.txt"
    target.parent.mkdir(exist_ok=True)
    other.write_text(source)
    py_compile.compile(
        str(other),
        str(target),
        dfile=str(pretended),
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    other.unlink()


def test_bytecode_beside_a_plugin_is_not_run(folder: Path) -> None:
    source = folder / "mine.py"
    planted = Path(importlib.util.cache_from_source(str(source)))
    compile_into(GREET_AS_X, planted, source)
    loaded = loaded_from(folder)
    assert isinstance(loaded, LoadedPlugin)
    assert loaded.plugin.name == "greet"


def test_bytecode_of_a_module_within_a_plugin_is_not_run(folder: Path) -> None:
    package = folder / "mine"
    package.mkdir()
    (folder / "mine.py").unlink()
    (package / "__init__.py").write_text(GREET + "\nfrom busd_plugins.mine.part import word\n")
    (package / "part.py").write_text('word = "source"\n')
    planted = Path(importlib.util.cache_from_source(str(package / "part.py")))
    compile_into('word = "planted"\n', planted, package / "part.py")
    compile_into('word = "planted"\n', package / "bare.pyc", package / "bare.py")
    loaded = loaded_from(folder)
    assert isinstance(loaded, LoadedPlugin)
    assert sys.modules["busd_plugins.mine.part"].word == "source"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("busd_plugins.mine.bare")


def test_no_bytecode_is_left_beside_a_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert isinstance(loaded_from(folder), LoadedPlugin)
    assert [each.name for each in folder.iterdir()] == ["mine.py"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_bytecode_of_somebody_else_within_a_plugin_is_refused(folder: Path) -> None:
    package = folder / "whole"
    package.mkdir()
    (package / "__init__.py").write_text(GREET)
    planted = Path(importlib.util.cache_from_source(str(package / "__init__.py")))
    compile_into(GREET_AS_X, planted, package / "__init__.py")
    os.chown(planted.parent, 65_534, 65_534)
    [whole] = find("whole", (str(folder),))
    assert whole.danger == f"{planted.parent} belongs to uid 65534; chown it, or remove it"


def test_a_plugin_that_a_group_can_write_is_refused(folder: Path) -> None:
    source = folder / "mine.py"
    source.chmod(0o664)
    [mine] = find("mine", (str(folder),))
    assert (
        mine.danger == f"group {source.stat().st_gid} may write {source}; run: chmod g-w {source}"
    )


def test_a_folder_that_a_group_can_write_is_refused(folder: Path) -> None:
    folder.chmod(0o775)
    [refused] = find("plugins", (str(folder),))
    assert refused.danger.startswith(f"group {folder.stat().st_gid} may write {folder};")
    assert not find("mine", (str(folder),))


@pytest.mark.parametrize(("mode", "who"), [(0o775, "group"), (0o757, "everybody")])
def test_a_folder_above_that_others_can_write_is_refused(folder: Path, mode: int, who: str) -> None:
    folder.parent.chmod(mode)
    [refused] = find("plugins", (str(folder),))
    assert refused.danger.startswith(who)
    assert f" may write {folder.parent};" in refused.danger


def test_a_sticky_folder_above_is_no_danger(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    [mine] = find("mine", (str(folder),))
    assert mine.danger == ""


def test_a_link_is_as_safe_as_the_folders_above_its_target(folder: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / "target.py").write_text(GREET)
    loose.chmod(0o777)
    (folder / "linked.py").symlink_to(loose / "target.py")
    [linked] = find("linked", (str(folder),))
    assert linked.danger == f"everybody may write {loose}; run: chmod go-w {loose}"


def test_a_linked_folder_within_a_plugin_is_looked_into(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "part.py").write_text("")
    (elsewhere / "part.py").chmod(0o666)
    package = folder / "whole"
    package.mkdir()
    (package / "__init__.py").write_text(GREET)
    (package / "inner").symlink_to(elsewhere)
    [whole] = find("whole", (str(folder),))
    assert whole.danger.startswith("everybody may write ")
