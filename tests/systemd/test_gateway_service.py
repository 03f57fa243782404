"""The gateway as a service of its own, beside the bus."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.daemons import PATIENCE_SECONDS
from tests.systemd.conftest import Service, sees_python
from tests.systemd.managers import ROOT, Manager, SystemManager

UNIT = "busd-gateway.service"


class GatewayUnit:
    """The unit of the gateway, under a user's manager or the system's."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager

    def show(self, name: str) -> str:
        return self.manager.show(UNIT, name)

    def until(self, name: str, value: str) -> None:
        """Wait until a property has a value."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.show(name)) != value:
            assert time.monotonic() < deadline, f"{name} is {found}"
            time.sleep(0.05)  # nothing of systemd can be awaited

    def change(self, *lines: str) -> None:
        self.manager.drop_in(UNIT, "\n".join(["[Service]", *lines, ""]))
        self.manager.systemctl("daemon-reload")

    def configure(self, gateway: str) -> None:
        """Write the table [gateway] of the settings file."""
        config = self.manager.folder / "gateway.toml"
        config.write_text(f"[gateway]\n{gateway}\n")
        program = self.program.replace(" --json", f" --json --config {config}")
        self.change("ExecStart=", f"ExecStart={program}")

    @property
    def program(self) -> str:
        lines = self.manager.systemctl("cat", UNIT).splitlines()
        return next(line for line in lines if line.startswith("ExecStart=")).partition("=")[2]

    @property
    def main_pid(self) -> int:
        return int(self.show("MainPID"))

    @property
    def port(self) -> int:
        place = self.show("StatusText").removeprefix("listening on ")
        return int(place.rpartition(":")[2])


@pytest.fixture
def gateway(service: Service) -> Iterator[GatewayUnit]:
    """The gateway of a user, not started yet; afterwards all is as it was."""
    unit = GatewayUnit(service.manager)
    unit.change(
        f"Environment=PYTHONPATH={ROOT}",
        f"StandardError=append:{service.manager.folder}/busd.log",
    )
    unit.configure('listen = "127.0.0.1:0"')
    yield unit
    unit.manager.systemctl("stop", UNIT)
    unit.manager.try_systemctl("reset-failed")


def test_it_is_ready_when_it_listens_and_starts_the_bus(
    service: Service, gateway: GatewayUnit
) -> None:
    gateway.manager.systemctl("start", UNIT)

    with closing(socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_SECONDS)):
        pass
    with service.peer("agent:a") as peer:
        assert peer.call("ping")


def test_one_that_is_killed_is_started_again(gateway: GatewayUnit) -> None:
    gateway.change("RestartSec=100ms")
    gateway.manager.systemctl("start", UNIT)

    os.kill(gateway.main_pid, signal.SIGKILL)

    gateway.until("NRestarts", "1")
    gateway.until("ActiveState", "active")


def test_one_that_hangs_is_started_again(gateway: GatewayUnit) -> None:
    gateway.change("RestartSec=100ms", "WatchdogSec=2s", "TimeoutAbortSec=1s")
    gateway.manager.systemctl("start", UNIT)

    os.kill(gateway.main_pid, signal.SIGSTOP)

    gateway.until("NRestarts", "1")
    gateway.until("ActiveState", "active")


def test_a_stop_ends_it_in_peace_and_leaves_the_bus(service: Service, gateway: GatewayUnit) -> None:
    service.start()
    gateway.manager.systemctl("start", UNIT)

    gateway.manager.systemctl("stop", UNIT)

    assert (gateway.show("Result"), gateway.show("ExecMainStatus")) == ("success", "0")
    assert service.show("ActiveState") == "active"


def test_with_bad_settings_it_is_not_started_again(service: Service, gateway: GatewayUnit) -> None:
    gateway.configure('listen = "0.0.0.0:80"')

    assert gateway.manager.try_systemctl("start", UNIT).returncode != 0

    assert (gateway.show("ExecMainStatus"), gateway.show("NRestarts")) == ("78", "0")
    assert "0.0.0.0:80 is no loopback address" in service.log()


def test_the_one_of_the_system_works_in_its_sandbox(system_service: SystemManager) -> None:
    unit = GatewayUnit(system_service)
    unit.change(
        *sees_python(), f"Environment=PYTHONPATH={ROOT}", "StandardError=append:/run/gateway.log"
    )
    log = system_service.inside("/run/gateway.log")

    unit.manager.systemctl("start", UNIT)

    assert unit.show("StatusText") == "listening on 127.0.0.1:7893"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "bus.connected" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    visit = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:7893/status').status)"
    done = system_service.run(sys.executable, "-c", visit)
    assert done.stdout == "200\n", done.stderr  # root is an owner: the sandbox hides no uid
    unit.manager.systemctl("stop", UNIT)
    assert unit.show("Result") == "success"
