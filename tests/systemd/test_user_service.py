"""busd as a service of a user: ready when it routes, watched, restarted, reloaded, drained."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack

import pytest

from tests.systemd.conftest import Service
from tests.wire_peers import Closed


def test_start_returns_only_when_the_bus_routes(service: Service, opened: ExitStack) -> None:
    gate = service.manager.folder / "gate"
    os.mkfifo(gate)
    service.change(f"ExecStart=\nExecStart=/bin/sh -c 'read word < {gate}; exec {service.program}'")
    service.manager.systemctl("start", "--no-block", "busd.service")
    states = (service.show("ActiveState") for _ in range(500))  # its socket is started first
    assert next(state for state in states if state != "inactive") == "activating"

    gate.write_text("go\n")
    service.start()

    assert service.show("ActiveState") == "active"
    assert service.show("StatusText").startswith("listening on unix:")
    alice, bob = (opened.enter_context(service.peer(name)) for name in ("agent:a", "agent:b"))
    request = alice.send_message("agent:b", {"n": 1})
    bob.answer(bob.next_message(), {"success": True})
    assert alice.answer_to(request)["result"]["acks"][0]["success"]


def test_a_client_that_comes_first_starts_the_bus(service: Service, opened: ExitStack) -> None:
    service.manager.systemctl("start", "busd.socket")
    assert service.show("ActiveState") == "inactive"

    for is_tcp in (False, True):
        assert opened.enter_context(service.peer("agent:a", is_tcp=is_tcp)).call("ping")

    assert service.show("ActiveState") == "active"


def test_nobody_is_refused_while_the_bus_restarts(service: Service, opened: ExitStack) -> None:
    service.start()
    visitors = [Visitor(service, is_tcp=is_tcp) for is_tcp in (False, True) for _ in range(2)]
    for visitor in visitors:
        visitor.start()
        opened.callback(visitor.stop)

    for _ in range(3):
        pid = service.main_pid
        service.manager.systemctl("restart", "busd.service")
        assert service.main_pid not in (0, pid)
        for visitor in visitors:
            visitor.await_answer()

    opened.close()
    assert [visitor.problem for visitor in visitors] == [None] * len(visitors)
    assert service.manager.socket.is_socket()


def test_a_reload_keeps_process_and_connections(service: Service, opened: ExitStack) -> None:
    service.start()
    alice = opened.enter_context(service.peer("agent:a"))
    pid = service.main_pid

    service.manager.systemctl("reload", "busd.service")

    assert alice.call("ping")
    assert service.main_pid == pid
    assert service.show("NRestarts") == "0"


def test_a_frozen_bus_is_restarted_by_the_watchdog(service: Service, opened: ExitStack) -> None:
    service.change("WatchdogSec=2s\nTimeoutAbortSec=1s\nRestartSec=100ms")
    service.start()
    alice = opened.enter_context(service.peer("agent:a"))
    pid = service.main_pid

    os.kill(pid, signal.SIGSTOP)

    assert alice.expect_close() is None
    assert opened.enter_context(service.peer("agent:a")).call("ping")
    assert service.main_pid != pid
    assert service.show("NRestarts") == "1"


def test_a_bus_that_turns_is_left_in_peace_by_the_watchdog(
    service: Service, opened: ExitStack
) -> None:
    service.change("WatchdogSec=2s")
    service.start()
    alice = opened.enter_context(service.peer("agent:a"))
    fed_at = int(service.show("WatchdogTimestampMonotonic"))

    while int(service.show("WatchdogTimestampMonotonic")) < fed_at + 3_000_000:
        alice.call("ping")

    assert service.show("NRestarts") == "0"


def test_a_killed_bus_is_restarted(service: Service, opened: ExitStack) -> None:
    service.change("RestartSec=100ms")
    service.start()
    alice = opened.enter_context(service.peer("agent:a"))

    os.kill(service.main_pid, signal.SIGKILL)

    assert alice.expect_close() is None
    assert opened.enter_context(service.peer("agent:a")).call("ping")
    assert service.show("NRestarts") == "1"


def test_a_stop_waits_for_the_acks_still_owed(service: Service, opened: ExitStack) -> None:
    service.start()
    alice, bob = (opened.enter_context(service.peer(name)) for name in ("agent:a", "agent:b"))
    request = alice.send_message("agent:b", {"n": 1})
    message = bob.next_message()

    service.manager.systemctl("stop", "--no-block", "busd.service")
    while service.show("StatusText") != "answering what was accepted":
        assert service.show("ActiveState") in ("active", "deactivating")
    bob.answer(message, {"success": True, "message": "at the last moment"})

    assert alice.answer_to(request)["result"]["acks"][0]["message"] == "at the last moment"
    assert alice.expect_close() is None
    service.manager.systemctl("stop", "busd.service")
    assert service.show("Result") == "success"
    assert service.manager.socket.is_socket()


def test_a_wrong_configuration_is_not_tried_again(service: Service) -> None:
    config = service.manager.folder / "config/busd/wrong.toml"
    config.write_text("loopp = 'trio'\n")
    service.change(f"ExecStart=\nExecStart={service.program} --config {config}")

    assert service.manager.try_systemctl("start", "busd.service").returncode != 0

    assert service.show("ActiveState") == "failed"
    assert service.show("ExecMainStatus") == "78"
    assert service.show("NRestarts") == "0"
    assert "did you mean 'loop'?" in service.log()


def test_a_client_does_not_wait_for_a_wrong_configuration_for_ever(service: Service) -> None:
    service.change("ExecStart=\nExecStart=/bin/sh -c 'exit 78'")
    service.manager.systemctl("start", "busd.socket")

    with pytest.raises((Closed, BrokenPipeError)), service.peer("agent:a"):
        pass

    assert service.manager.show("busd.socket", "Result") == "service-start-limit-hit"


def test_the_doctor_is_content_with_a_running_service(service: Service) -> None:
    service.start()

    done = service.manager.busd("doctor", "--user")

    assert done.returncode == 0, done.stdout
    assert f"ok       socket: tcp://127.0.0.1:{service.port} is open\n" in done.stdout
    assert "ok       busd.service: active (running)\n" in done.stdout
    assert "problem" not in done.stdout


def test_the_doctor_says_what_is_wrong_with_a_failed_service(service: Service) -> None:
    service.change("ExecStart=\nExecStart=/bin/sh -c 'exit 78'")
    service.manager.try_systemctl("start", "busd.service")

    done = service.manager.busd("doctor", "--user")

    assert done.returncode == 1, done.stdout
    assert "problem  busd.service: failed: bad configuration\n" in done.stdout
    assert service.manager.show("busd.socket", "ActiveState") == "active"


class Visitor(threading.Thread):
    """Connects again and again; a connection may end, but none may be refused."""

    def __init__(self, service: Service, *, is_tcp: bool) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._is_tcp = is_tcp
        self._answered = threading.Semaphore(0)
        self._must_stop = threading.Event()
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            while not self._must_stop.is_set():
                self._visit()
        except Exception as problem:
            self.problem = problem
            self._answered.release(1_000_000)  # nobody shall wait for us

    def _visit(self) -> None:
        try:
            with self._service.peer("agent:visitor", is_tcp=self._is_tcp) as alice:
                alice.call("ping")
                self._answered.release()
        except (Closed, BrokenPipeError, ConnectionResetError):
            pass  # the bus that stops hangs up

    def await_answer(self) -> None:
        """Wait for an answer that begins from now on."""
        while self._answered.acquire(blocking=False):
            pass
        for _ in range(2):  # the first may have been on its way
            assert self._answered.acquire(timeout=30)

    def stop(self) -> None:
        self._must_stop.set()
        self.join()
