"""The log of a daemon that is flooded: cut short, and what was left out is counted."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest

from tests.bus.access.guarded import join_with, new_token, open_guarded
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.wire_peers import connect, open_tcp

AT_ONCE = 100
MANY = 400


@pytest.fixture(scope="session")
def loop() -> Loop:
    """The loop of the daemon: one is enough here."""
    return "uvloop"


def lines(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log().splitlines()]


def logged_and_suppressed(daemon: Daemon, event: str) -> tuple[int, int]:
    """Stop a daemon; return how many lines of an event it logged, and how many it left out."""
    daemon.stop()
    said = lines(daemon)
    left_out: Counter[str] = Counter()
    for line in said:
        if line["event"] == "log.suppressed":
            left_out[line["suppressed"]] += line["lines"]
    return sum(line["event"] == event for line in said), left_out[event]


def test_peers_that_come_and_go_are_logged_in_part_and_counted(loop: Loop) -> None:
    with open_daemon(
        loop, {"plugins.disabled": ["bridges", "bub", "gateway"]}, log_level="info"
    ) as daemon:
        for _ in range(MANY):
            peer = connect(daemon, "unix")
            peer.initialize("agent:visitor")
            peer.close()
        logged, suppressed = logged_and_suppressed(daemon, "peer.joined")
    assert logged >= AT_ONCE
    assert suppressed > 0
    assert logged + suppressed == MANY


def test_connections_that_say_nothing_are_logged_in_part_and_counted(loop: Loop) -> None:
    with open_daemon(loop, {"wire.first_request_seconds": 0.5}, log_level="info") as daemon:
        with ExitStack() as opened:
            silent = [opened.enter_context(open_tcp(daemon.port)) for _ in range(MANY)]
            for sock in silent:
                _wait_for_end(sock)
        logged, suppressed = logged_and_suppressed(daemon, "connection.closed")
    assert suppressed > 0
    assert logged + suppressed == MANY


def test_connections_over_the_limit_are_logged_in_part_and_counted(loop: Loop) -> None:
    with open_daemon(loop, {"wire.max_connections": 1}, log_level="info") as daemon:
        peer = connect(daemon, "unix")
        peer.initialize("agent:first")
        for _ in range(MANY):
            with open_tcp(daemon.port) as sock:
                _wait_for_end(sock)
        peer.close()
        logged, suppressed = logged_and_suppressed(daemon, "connection.refused")
    assert suppressed > 0
    assert logged + suppressed == MANY


def test_a_long_value_is_logged_in_part(opened: ExitStack) -> None:
    mine = {"name": "mine", "token": "mine", "send_to": ["desk:*"]}
    with open_guarded("uvloop", [mine]) as daemon:
        peer = join_with(daemon, "tcp", new_token(daemon, "mine"), "agent:1", opened)
        peer.answer_to(peer.send_message("vault:" + "x" * 200_000))
        peer.answer_to(peer.send_message("vault:1"))
        assert max(map(len, daemon.log().splitlines())) < 2_000


def test_what_a_library_logs_has_the_form_of_a_log_line() -> None:
    program = (
        "import logging; from busd.ops.logs import set_up_logs; set_up_logs('info');"
        "[logging.getLogger('asyncio').warning('socket.send() raised exception.')"
        " for _ in range(300)]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_SECONDS, check=True
    )
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert AT_ONCE <= len(said) <= AT_ONCE + 10
    assert said[0]["event"] == "library.warned"
    assert said[0]["library"] == "asyncio"
    assert said[0]["reason"] == "socket.send() raised exception."


@pytest.mark.parametrize(("level", "count"), [("info", 1), ("warning", 0)])
def test_what_a_part_of_busd_reports_is_logged_and_what_a_library_reports_is_not(
    level: str, count: int
) -> None:
    program = (
        f"import logging; from busd.ops.logs import set_up_logs; set_up_logs({level!r});"
        "[logging.getLogger(name).info('connected') for name in ('busd.bridge', 'asyncio')]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_SECONDS, check=True
    )
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert [each["library"] for each in said] == ["busd.bridge"] * count


@pytest.mark.parametrize("value", ["'\\ud800'", "2**70", "b'\\xff'", "float('nan')", "object()"])
def test_a_value_that_json_has_no_word_for_is_logged_all_the_same(value: str) -> None:
    program = (
        "import structlog; from busd.ops.logs import set_up_logs; set_up_logs('info');"
        f"structlog.get_logger().info('odd.seen', value={value})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_SECONDS, check=True
    )
    [line] = done.stderr.splitlines()
    assert json.loads(line)["event"] == "odd.seen"


def _wait_for_end(sock: socket.socket) -> None:
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
