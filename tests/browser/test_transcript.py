"""The very bytes that a browser sent for a hostile page, sent again without the browser.

They were written down by `test_browser.py`: from a page of the bus's own origin, of another one,
and of a host name that was made to point at the bus.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from tests.browser.page import LINES
from tests.browser.test_browser import SITES, TRANSCRIPT, assert_untouched
from tests.daemons import Daemon, Loop, open_daemon
from tests.wire_peers import Peer, connect, open_tcp

REQUESTS: dict[str, list[str]] = json.loads(TRANSCRIPT.read_text())


@pytest.fixture(scope="module")
def daemon(loop: Loop) -> Iterator[Daemon]:
    """A bus that lets everybody in who can speak to it at all."""
    with open_daemon(loop) as daemon:
        yield daemon


@pytest.fixture
def witness(daemon: Daemon) -> Iterator[Peer]:
    peer = connect(daemon, "unix")
    peer.initialize("agent:witness")
    yield peer
    peer.close()


def answer_to(daemon: Daemon, data: bytes) -> bytes:
    """Send bytes over a connection of their own; return all that comes back."""
    received = b""
    with open_tcp(daemon.port) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(65_536):
                received += chunk
        except ConnectionError:
            pass  # it closed before it had read all
    return received


@pytest.mark.parametrize("site", SITES)
def test_what_a_browser_sent_reaches_no_method(daemon: Daemon, witness: Peer, site: str) -> None:
    requests = [each.encode("latin-1") for each in REQUESTS[site]]
    assert any(each.startswith(b"PROPFIND ") for each in requests) or site == "another origin"
    for request in requests:
        answer = answer_to(daemon, request)
        assert answer.startswith(b"HTTP/1.1 4"), request
    assert_untouched(daemon, witness)


@pytest.mark.parametrize("site", SITES)
def test_pipelined_requests_reach_no_method(daemon: Daemon, witness: Peer, site: str) -> None:
    requests = [each.encode("latin-1") for each in REQUESTS[site]]
    lines = LINES.encode() + b"\n"
    for first, second in zip(requests, [*requests[1:], requests[0]], strict=True):
        for behind in (second, lines, b"\r\n" + lines, b"\r\n\r\n" + lines + second):
            answer = answer_to(daemon, first + behind)
            assert answer.startswith(b"HTTP/1.1 4"), first
            assert answer.count(b"HTTP/1.1 ") == 1
    assert_untouched(daemon, witness)


def test_no_request_of_a_browser_begins_as_lines_do() -> None:
    for requests in REQUESTS.values():
        assert len(requests) >= 10
        assert not any(each[0] in "{[ \t\r\n" for each in requests)
