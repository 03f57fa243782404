"""`pip install .` as a plain wheel: what is in it, and that an empty environment can run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from busd import __version__
from tests.cli.terminal import ROOT, Terminal
from tests.daemons import PATIENCE_SECONDS

_INSTALL_SECONDS = 300


def pip(*args: str) -> subprocess.CompletedProcess[str]:
    # No user's site and no PYTHONPATH: the new environment is to be empty.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PIP_CONSTRAINT", "VIRTUAL_ENV")
    }
    return subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *args],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
    )


def must_work(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    """Fail with what pip said; skip if it is only that no package index can be reached."""
    if done.returncode == 0:
        return
    probe = pip("download", "--no-deps", "--dest", str(folder), "hatchling")
    if probe.returncode != 0:
        pytest.skip("pip cannot reach a package index, so nothing can be installed")
    pytest.fail(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    must_work(pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)), folder)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    must_work(pip("--python", str(python), "install", "--no-compile", str(wheel)), folder)
    return folder / "bin"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert re.fullmatch(rf"busd-{re.escape(__version__)}-py3-none-any\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [entries] = [archive.read(name) for name in names if name.endswith("entry_points.txt")]
    assert {name.split("/")[0] for name in names} == {"busd", f"busd-{__version__}.dist-info"}
    assert {"busd/py.typed", "busd/testing/__init__.py", "busd/cli/main.py"} <= names
    assert b"busd = busd.cli.main:main" in entries


def test_an_empty_environment_can_run_a_bus_and_talk_over_it(
    environment: Path, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path)
    del terminal.environment["PYTHONPATH"]
    busd = str(environment / "busd")
    assert terminal.run([busd, "--version"]) == (0, f"busd {__version__}\n", "")
    address = f"unix:{tmp_path / 'bus.sock'}"
    serve = [busd, "serve", "--json", "-l", address, "--log-level", "warning"]
    with terminal.start_any(serve) as bus:
        assert json.loads(bus.stdout.readline())["listening"] == [address]
        program = (
            "import sys; from busd import SyncClient\n"
            "with SyncClient('agent:bob', address=sys.argv[1]) as bus:\n"
            "    print('ready', flush=True)\n"
            "    for message in bus.messages():\n"
            "        message.reply({'text': message.payload['content']['text'].upper()})\n"
        )
        python = str(environment / "python")
        with terminal.start_any([python, "-c", program, address]) as bob:
            assert bob.stdout.readline() == "ready\n", bob.stderr.read()
            said = terminal.run([busd, "send", "agent:bob", "hi", "--wait", "-a", address])
            assert said == (0, 'agent:bob: ok {"text":"HI"}\n', "")
        assert bus.interrupt() == (0, "", "")
        assert bus.process.wait(PATIENCE_SECONDS) == 0
