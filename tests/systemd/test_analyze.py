"""The units themselves: systemd has nothing to say against them, and little is exposed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.systemd.managers import ROOT

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)


@pytest.fixture(params=["user", "system"])
def flavour(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def units(tmp_path: Path, flavour: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the units of a flavour, as `busd install` writes them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    subprocess.run(
        [sys.executable, "-m", "busd", "install", f"--{flavour}", "--root", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return tmp_path / ("config/systemd/user" if flavour == "user" else "etc/systemd/system")


def test_systemd_finds_no_fault_with_the_units(units: Path, flavour: str) -> None:
    names = ("busd.service", "busd.socket", "busd-gateway.service", "busd-bridge@.service")
    paths = [str(units / name) for name in names]
    done = analyze("verify", f"--{flavour}", *paths)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["busd.service", "busd-gateway.service"])
def test_little_of_the_host_is_exposed_to_the_system_services(
    units: Path, flavour: str, name: str
) -> None:
    if flavour == "user":
        return
    done = analyze("security", "--offline=true", "--threshold=20", str(units / name))

    found = re.search(rf"Overall exposure level for {name}: (\S+)", done.stdout)
    assert found, done.stderr
    assert float(found[1]) <= 2.0, done.stdout
    assert done.returncode == 0
    assert "PrivateUsers=yes" not in (units / name).read_text()


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, check=False, timeout=30
    )
