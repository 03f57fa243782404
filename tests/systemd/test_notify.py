"""What busd tells a service manager: when it is ready, reloads, stops, and that it is alive."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from busd.ops import notify
from tests.daemons import PATIENCE_SECONDS, Loop, serve_args
from tests.systemd.managers import ROOT


class Listener:
    """Stands in for the manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind("\0" + address[1:] if address.startswith("@") else address)
        self._sock.settimeout(PATIENCE_SECONDS)

    def hear(self) -> dict[str, str]:
        lines = self._sock.recv(65_536).decode().split("\n")
        return dict(line.split("=", 1) for line in lines)

    def hear_nothing(self) -> None:
        self._sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            self._sock.recv(65_536)

    def close(self) -> None:
        self._sock.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    path = tmp_path / "notify"
    listener = Listener(str(path) if request.param == "path" else f"@busd-test-{os.getpid()}")
    yield listener
    listener.close()


@contextmanager
def open_serving(loop: Loop, folder: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "busd", *serve_args(folder, loop)],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_manager_hears_why_a_reload_was_refused(
    manager: Listener, loop: Loop, tmp_path: Path
) -> None:
    with open_serving(loop, tmp_path, NOTIFY_SOCKET=manager.address) as busd:
        listening = manager.hear()["STATUS"]
        config = tmp_path / "busd.toml"
        config.write_text("loopp = 3\n")

        busd.send_signal(signal.SIGHUP)
        assert manager.hear()["RELOADING"] == "1"
        ready = manager.hear()
        assert ready["READY"] == "1"
        reason = f"{config}: unknown setting 'loopp'; did you mean 'loop'?"
        assert ready["STATUS"] == f"reload refused, the old settings stay: {reason}; {listening}"

        config.write_text('policy = "open"\n')
        busd.send_signal(signal.SIGHUP)
        assert manager.hear()["RELOADING"] == "1"
        assert manager.hear()["STATUS"] == listening


def test_a_manager_hears_of_start_reload_and_stop(
    manager: Listener, loop: Loop, tmp_path: Path
) -> None:
    with open_serving(loop, tmp_path, NOTIFY_SOCKET=manager.address) as busd:
        ready = manager.hear()
        assert ready["READY"] == "1"
        assert ready["STATUS"].startswith(f"listening on unix:{tmp_path}/bus.sock, tcp://127.")

        busd.send_signal(signal.SIGHUP)
        reloading = manager.hear()
        assert reloading["RELOADING"] == "1"
        assert int(reloading["MONOTONIC_USEC"]) > 0
        assert manager.hear()["READY"] == "1"

        busd.send_signal(signal.SIGTERM)
        stopping = manager.hear()
        assert stopping["STOPPING"] == "1"
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 12_000_000  # to drain, and to linger
        assert busd.wait(PATIENCE_SECONDS) == 0


def test_the_watchdog_is_fed_as_long_as_the_loop_turns(
    manager: Listener, loop: Loop, tmp_path: Path
) -> None:
    variables = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000"}
    with open_serving(loop, tmp_path, **variables):
        while (heard := manager.hear()) == {"WATCHDOG": "1"}:
            pass  # on a busy machine it is fed before the bus is ready
        assert heard["READY"] == "1"
        for _ in range(3):
            assert manager.hear() == {"WATCHDOG": "1"}


def test_the_watchdog_is_fed_no_oftener_than_it_needs(
    manager: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    watchdog = notify.Watchdog()
    for _ in range(3):
        watchdog.feed()

    assert manager.hear() == {"WATCHDOG": "1"}
    manager.hear_nothing()


def test_a_status_is_one_line(manager: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    notify.status("all is well\nREADY=1")

    assert manager.hear() == {"STATUS": "all is well READY=1"}


@pytest.mark.parametrize("address", ["", "/there/is/nobody", "@busd-test-nobody", "vsock:2:1"])
def test_without_a_manager_nobody_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)

    notify.ready("listening")
    notify.watchdog()


@pytest.mark.parametrize(
    ("period", "pid", "seconds"),
    [
        ("30000000", None, 30.0),
        pytest.param("30000000", str(os.getpid()), 30.0, id="own-pid"),
        ("30000000", "1", None),  # somebody else is watched
        (None, None, None),
        ("0", None, None),
        ("soon", None, None),
    ],
)
def test_the_watchdog_period_is_ours_only_if_it_says_so(
    period: str | None, pid: str | None, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WATCHDOG_USEC", period), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)

    assert notify.watchdog_seconds() == seconds
