"""`systemctl reload`: it fails when the new settings are refused, and the status says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.conftest import Service
from tests.systemd.managers import SystemManager


@pytest.fixture
def extra(service: Service) -> Iterator[Path]:
    """A file of settings beside those that `busd install` wrote."""
    path = service.manager.folder / "config/busd/conf.d/extra.toml"
    path.parent.mkdir(exist_ok=True)
    yield path
    path.unlink(missing_ok=True)


def test_a_refused_reload_fails_and_the_bus_goes_on(service: Service, extra: Path) -> None:
    service.start()
    pid = service.main_pid
    extra.write_text("loopp = 3\n")

    assert service.manager.try_systemctl("reload", "busd.service").returncode != 0

    assert service.show("ActiveState") == "active"
    assert service.main_pid == pid
    status = service.show("StatusText")
    assert status.startswith("reload refused, the old settings stay: ")
    assert "unknown setting 'loopp'; did you mean 'loop'?" in status

    extra.write_text("drain_seconds = 3.0\n")
    service.manager.systemctl("reload", "busd.service")

    assert service.main_pid == pid
    assert service.show("StatusText").startswith("listening on unix:")


def test_a_reload_returns_when_the_new_settings_hold(service: Service, extra: Path) -> None:
    service.start()
    extra.write_text("delivery.max_subscriptions = 1\n")

    service.manager.systemctl("reload", "busd.service")

    with service.peer("agent:a") as peer:  # its own name is one already
        assert "error" in peer.answer_to(peer.request("subscribe", {"address": "x"}))


def test_busd_stop_says_that_the_next_client_starts_it_again(service: Service) -> None:
    service.start()

    done = service.manager.busd("stop")

    assert done.returncode == 0, done.stderr
    assert "systemd holds its sockets: the next client starts it again" in done.stderr
    while service.show("ActiveState") == "deactivating":
        pass  # systemd hears of the end a moment later
    assert service.show("ActiveState") == "inactive"
    assert service.show("Result") == "success"
    with service.peer("agent:a") as peer:
        assert peer.call("ping")


def test_the_sandbox_of_the_system_service_lets_it_be_reloaded(
    system_service: SystemManager,
) -> None:
    system_service.systemctl("start", "busd.service")
    extra = system_service.inside("/etc/busd/conf.d/extra.toml")
    extra.parent.mkdir(exist_ok=True)
    try:
        extra.write_text("drain_seconds = 3.0\n")
        system_service.systemctl("reload", "busd.service")
        assert system_service.show("busd.service", "StatusText").startswith("listening on unix:")
        extra.write_text("loopp = 3\n")
        assert system_service.try_systemctl("reload", "busd.service").returncode != 0
        assert system_service.show("busd.service", "StatusText").startswith("reload refused, ")
        assert system_service.show("busd.service", "ActiveState") == "active"
    finally:
        extra.unlink()
