"""Pages of other sites, and requests that want no WebSocket."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.bad_input.pressure import MIB, bounded_memory, pour
from tests.conftest import DaemonWith
from tests.daemons import Daemon
from tests.wire_peers import Peer, WebSocketPeer, open_http, open_tcp, upgrade_lines


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://evil.example:7892",
        "null",
        "file://",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost.evil.example",
        "http://127.0.0.1:99999999",
    ],
)
def test_a_foreign_origin_is_refused(browser: WebSocketPeer, origin: str) -> None:
    status, text = open_http(browser, *upgrade_lines(f"Origin: {origin}"))
    assert status == 403
    assert text == f"Origin {origin!r} may not use this bus; see allowed_origins.\n"
    browser.expect_close()


def test_a_foreign_page_that_points_its_own_name_at_the_bus_is_refused(
    browser: WebSocketPeer, daemon: Daemon
) -> None:
    lines = upgrade_lines(f"Origin: http://evil.example:{daemon.port}")
    status, _ = open_http(browser, *lines, host="evil.example")
    assert status == 403


def test_two_origins_are_refused(browser: WebSocketPeer, daemon: Daemon) -> None:
    own = f"Origin: http://127.0.0.1:{daemon.port}"
    status, _ = open_http(browser, *upgrade_lines(own, own))
    assert status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_origin_of_the_bus_itself_is_admitted(
    browser: WebSocketPeer, daemon: Daemon, host: str, suffix: str
) -> None:
    lines = upgrade_lines(f"Origin: http://{host}:{daemon.port}")
    status, _ = open_http(browser, *lines, host=host)
    assert status == 101
    browser.initialize(f"agent:page{suffix}")


def test_a_listed_origin_is_admitted_and_no_other(
    daemon_with: DaemonWith, opened: ExitStack
) -> None:
    daemon = daemon_with({"allowed_origins": ["https://chat.example"]})
    for origin, expected in (("https://chat.example", 101), ("http://chat.example", 403)):
        page = WebSocketPeer(opened.enter_context(open_tcp(daemon.port)))
        status, _ = open_http(page, *upgrade_lines(f"Origin: {origin}"))
        assert status == expected


def test_another_path_is_not_found(browser: WebSocketPeer) -> None:
    _, *lines = upgrade_lines()
    answer = open_http(browser, "GET /other?x=1 HTTP/1.1", *lines)
    assert answer == (404, "There is nothing at /other; the bus is at /.\n")
    browser.expect_close()


def test_a_query_does_not_change_the_path(browser: WebSocketPeer, suffix: str) -> None:
    _, *lines = upgrade_lines()
    status, _ = open_http(browser, "GET /?token=x HTTP/1.1", *lines)
    assert status == 101
    browser.initialize(f"agent:page{suffix}")


def test_a_plain_get_is_told_to_upgrade(browser: WebSocketPeer) -> None:
    status, _ = open_http(browser, "GET / HTTP/1.1")
    assert status == 426
    browser.expect_close()


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH"])
def test_another_http_method_is_not_allowed(browser: WebSocketPeer, method: str) -> None:
    status, _ = open_http(browser, f"{method} / HTTP/1.1", "Content-Length: 0")
    assert status == 405
    browser.expect_close()


def test_http_headers_without_end_are_refused(
    browser: WebSocketPeer, daemon: Daemon, witness: Peer
) -> None:
    with bounded_memory(daemon, 16 * MIB):
        browser.sock.sendall(b"GET / HTTP/1.1\r\n")
        pour(browser.sock, b"X-Filler: " + b"x" * 1000 + b"\r\n", 10_000)
        witness.expect_nothing()
        browser.read_some()
    assert browser.received.startswith(b"HTTP/1.1 431 ")


def test_what_only_begins_like_http_is_closed(browser: WebSocketPeer) -> None:
    browser.sock.sendall(b"GET nonsense\r\n\r\n")
    browser.expect_close()
