"""The source distribution: all that its own tests need is in it, and a wheel can be made of it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from busd import __version__
from tests.cli.terminal import ROOT

_BUILD = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
_BUILD_SECONDS = 300
_MADE_BY_MAKE = ".mypy/busd_plugins"  # a link, which no archive has


def build(hook: str, source: Path, folder: Path) -> Path:
    """Have the build backend make a distribution, as `python -m build` does."""
    done = run([sys.executable, "-c", _BUILD, hook, str(folder)], source)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: v for name, v in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("build_sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has downloaded it."""
    folder = tmp_path_factory.mktemp("unpacked")
    assert run(["tar", "-xf", str(sdist)], folder).returncode == 0
    return folder / f"busd-{__version__}"


def files_here() -> list[str]:
    """Return the files of this source tree: those that Git knows, else those of this archive."""
    known = run(["git", "ls-files"], ROOT) if (ROOT / ".git").exists() else None
    if known is not None and known.returncode == 0:
        return [name for name in known.stdout.splitlines() if name != _MADE_BY_MAKE]
    tops = [ROOT / name for name in (".ci", "bench", "busd", "docs", "plugins", "systemd", "tests")]
    return [str(file.relative_to(ROOT)) for top in tops for file in top.rglob("*.*[!c]")]


def test_the_source_distribution_holds_every_file(unpacked: Path) -> None:
    files = files_here()
    assert "docs/agents.md" in files
    assert [name for name in files if not (unpacked / name).is_file()] == []


def test_a_wheel_made_of_it_is_the_wheel_made_here(unpacked: Path, tmp_path: Path) -> None:
    contents = []
    for number, source in enumerate((unpacked, ROOT)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with zipfile.ZipFile(build("build_wheel", source, folder)) as wheel:
            contents.append({name: wheel.read(name) for name in wheel.namelist()})
    theirs, ours = contents
    assert theirs == ours
    assert {"busd/ops/units/user/busd.service", "busd/bundled_plugins/bub/__init__.py"} <= set(ours)


def test_the_tests_of_its_documents_pass(unpacked: Path) -> None:
    tests = ["tests/test_readme.py", "tests/ops/test_install.py"]
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], unpacked)
    assert done.returncode == 0, done.stdout[-3000:]
