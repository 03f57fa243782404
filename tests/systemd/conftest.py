"""What the tests with a real systemd share: the managers, and busd installed as their service."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.systemd.managers import (
    ROOT,
    NoManager,
    SystemManager,
    UserManager,
    open_system_manager,
    open_user_manager,
)
from tests.wire_peers import LinePeer, open_tcp, open_unix


class Service:
    """busd as a service of a user."""

    def __init__(self, manager: UserManager, port: int) -> None:
        self.manager = manager
        self.port = port
        self._log = manager.folder / "busd.log"
        self._token = manager.folder / "state/busd/token"
        # Made before the bus is: whoever comes first by TCP has to show it already.
        self._token.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._token.write_text(f"busd_{'t' * 43}\n")
        self._token.chmod(0o600)

    def change(self, lines: str) -> None:
        """Change the [Service] section before it starts."""
        self.manager.drop_in("busd.service", f"[Service]\n{lines}\n")
        self.manager.systemctl("daemon-reload")

    def start(self) -> None:
        self.manager.systemctl("start", "busd.service")

    def show(self, name: str) -> str:
        return self.manager.show("busd.service", name)

    @property
    def main_pid(self) -> int:
        return int(self.show("MainPID"))

    @property
    def program(self) -> str:
        """The command line that its unit starts."""
        unit = self.manager.drop_ins / "busd.service"
        lines = unit.read_text().splitlines()
        return next(line for line in lines if line.startswith("ExecStart=")).partition("=")[2]

    @contextmanager
    def peer(self, client_id: str, *, is_tcp: bool = False) -> Iterator[LinePeer]:
        """Open a connection; the bus answers when it runs."""
        sock = open_tcp(self.port) if is_tcp else open_unix(str(self.manager.socket))
        peer = LinePeer(sock)
        try:
            auth = {"auth": {"token": self._token.read_text().strip()}} if is_tcp else {}
            peer.initialize(client_id, **auth)
            yield peer
        finally:
            peer.close()

    def log(self) -> str:
        """Return what it said."""
        return self._log.read_text() if self._log.exists() else ""

    def forget(self) -> None:
        """Stop it and undo all changes; what it said is printed, in case the test has failed."""
        self.manager.systemctl("stop", "busd.socket", "busd.service")
        self.manager.try_systemctl("reset-failed")
        for folder in self.manager.drop_ins.glob("*.d"):
            shutil.rmtree(folder)
        print(self.log())
        self._log.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def user_manager() -> Iterator[UserManager]:
    """A user's manager, with busd installed by `busd install`."""
    try:
        with open_user_manager() as manager:
            done = manager.busd("install", "--user")
            assert done.returncode == 0, done.stderr
            yield manager
    except NoManager as reason:
        pytest.skip(str(reason))


@pytest.fixture
def service(user_manager: UserManager) -> Iterator[Service]:
    """busd as a service, not started yet; afterwards all is as it was."""
    with open_port() as port:
        lines = ["ListenStream=", "ListenStream=%t/busd/bus.sock"]
        # Not the usual port: the bus of whoever runs the tests may be there.
        lines += [f"ListenStream=127.0.0.1:{port}", "ReusePort=yes"]
        user_manager.drop_in("busd.socket", "\n".join(["[Socket]", *lines, ""]))
        user_manager.drop_in(
            "busd.service",
            f"[Service]\nEnvironment=PYTHONPATH={ROOT}\n"
            f"StandardError=append:{user_manager.folder}/busd.log\n",
        )
        user_manager.systemctl("daemon-reload")
        service = Service(user_manager, port)
        yield service
        service.forget()


@pytest.fixture(scope="session")
def system_manager() -> Iterator[SystemManager]:
    """A system's manager, with busd installed by `busd install`."""
    try:
        with open_system_manager() as manager:
            done = manager.busd("install", "--system")
            assert done.returncode == 0, done.stderr
            yield manager
    except NoManager as reason:
        pytest.skip(str(reason))


@pytest.fixture
def system_service(system_manager: SystemManager) -> Iterator[SystemManager]:
    """busd as a service of the system, not started yet; afterwards all is as it was."""
    lines = [*sees_python(), f"Environment=PYTHONPATH={ROOT}", "StandardError=append:/run/busd.log"]
    system_manager.drop_in("busd.service", "\n".join(["[Service]", *lines]))
    system_manager.systemctl("daemon-reload")
    yield system_manager
    system_manager.systemctl("stop", "busd.socket", "busd.service")
    system_manager.try_systemctl("reset-failed")
    shutil.rmtree(system_manager.drop_ins / "busd.service.d")
    log = system_manager.inside("/run/busd.log")
    print(log.read_text() if log.exists() else "")


def sees_python() -> list[str]:
    """Return what lets a sandbox see the Python and the busd under test, wherever they are."""
    places = {str(Path(place).resolve()) for place in (sys.prefix, sys.base_prefix, ROOT)}
    return ["ProtectHome=tmpfs", f"BindReadOnlyPaths={' '.join(sorted(places))}"]


@contextmanager
def open_port() -> Iterator[int]:
    """Reserve a port that only a socket with SO_REUSEPORT gets, and nobody by chance."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", 0))  # it never listens: all connections go to the other socket
        yield sock.getsockname()[1]
