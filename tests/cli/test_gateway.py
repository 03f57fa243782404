"""`busd gateway` in a terminal: what it prints, how it ends, and with which exit code."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Timer

import pytest

from tests.daemons import PATIENCE_SECONDS

ANYWHERE = ("--listen", "127.0.0.1:0")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of a user who has none of busd's yet."""
    for name in ("RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "BUSD_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        folder = tmp_path / variable.lower()
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(folder))
    return tmp_path


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "busd", "gateway", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    guard = Timer(PATIENCE_SECONDS, process.kill)  # reading has no time limit
    guard.start()
    try:
        with process:
            yield process
    finally:
        guard.cancel()
        process.kill()


def refusal(*words: str) -> tuple[int, str]:
    """Return the exit code of a gateway that does not start, and what it says."""
    with started(*words) as process:
        printed, said = process.communicate()
    assert printed == ""
    return process.returncode, said


def until_ready(process: subprocess.Popen[str]) -> list[str]:
    """Return the lines that it prints once it listens."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "Ctrl-C stops it.":
        line = process.stdout.readline()
        assert line, "it has ended"
        lines.append(line.rstrip())
    return lines


@pytest.mark.parametrize("signals", [1, 2])
def test_it_needs_no_bus_and_ctrl_c_ends_it(home: Path, signals: int) -> None:
    with started(*ANYWHERE) as process:
        lines = until_ready(process)
        assert [line.split()[0].partition("://")[0] for line in lines[1:-1]] == [
            "http",
            "ws",
            "ws",
            "ws",
        ]
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 0
    assert "Traceback" not in said


def test_that_there_is_no_bus_is_said_once(home: Path) -> None:
    with started(*ANYWHERE) as process:
        until_ready(process)
        assert process.stderr is not None
        assert "bus.unreachable" in process.stderr.readline()
        Timer(1.5, process.send_signal, [signal.SIGINT]).start()  # time for several attempts
        said = process.stderr.read()
    assert "bus.unreachable" not in said
    assert "gateway.stopping" in said


def test_nobody_else_may_look_into_the_folders_that_it_makes(home: Path) -> None:
    with started(*ANYWHERE) as process:
        until_ready(process)
        process.send_signal(signal.SIGINT)
        process.communicate()
    state = home / "xdg_state_home/busd"
    for folder in (state, state / "gateway"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("listen", "fault"),
    [
        ("nonsense", "'nonsense' must be like 127.0.0.1:7893 or [::1]:7893"),
        ("0.0.0.0:80", "0.0.0.0:80 is no loopback address"),
        ("127.0.0.1:99999", "there is no port 99999"),
    ],
)
def test_an_address_that_cannot_be_is_refused(home: Path, listen: str, fault: str) -> None:
    code, said = refusal("run", "--listen", listen)
    assert code == 78
    assert said.startswith("busd: ")
    assert fault in said
    assert said.count("\n") == 1


def test_a_port_in_use_is_named(home: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = refusal("--listen", place)
    assert (code, said) == (78, f"busd: cannot listen on tcp://{place}: Address already in use\n")


def test_a_second_one_is_refused(home: Path) -> None:
    with started(*ANYWHERE) as process:
        until_ready(process)
        code, said = refusal(*ANYWHERE)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert code == 78
    assert "another gateway uses the folder" in said


def test_without_its_extra_it_says_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = home / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\nfor name in ('uvicorn', 'starlette'):\n    sys.modules[name] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{hidden}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    code, said = refusal(*ANYWHERE)
    assert code == 78
    assert said.endswith("run: pip install 'busd[gateway]'\n")


def test_without_a_chat_format_it_says_so(home: Path) -> None:
    config = home / "busd.toml"
    config.write_text("[gateway]\ndialects = []\n")
    with started("run", *ANYWHERE, "--config", str(config)) as process:
        first = until_ready(process)[0]
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert first == "the gateway serves no chat format: gateway.dialects is empty"
