"""HTTP requests that are almost right: each gets an answer, and none is the bus's fault.

The daemon of these tests is checked after each of them: a traceback in its log fails the test.
"""

from __future__ import annotations

import base64
import socket
from itertools import islice

import pytest

from tests.bad_input.http_fuzz import requests, send
from tests.daemons import Daemon
from tests.wire_peers import open_tcp, upgrade_lines

_UPGRADE = "\r\n".join([*upgrade_lines(), "Host: localhost"]).encode() + b"\r\n"
_LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


def exchange(daemon: Daemon, *chunks: bytes) -> bytes:
    """Send bytes over a connection of their own; return all that comes back until its end."""
    with open_tcp(daemon.port) as sock:
        for chunk in chunks:
            sock.sendall(chunk)
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := sock.recv(65_536):
            received += chunk
        return received


def status_of(response: bytes) -> int:
    return int(response.split()[1])


@pytest.mark.parametrize("path", [b"//[", b"//[::1", b"http://[/", b"//[x]/livez"])
def test_a_path_that_is_no_url_gets_400(daemon: Daemon, path: bytes) -> None:
    response = exchange(daemon, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_of(response) == 400
    assert response.endswith(b"The path of this request is malformed.\n")


@pytest.mark.parametrize(
    "behind", [b"x", b"GET /livez HTTP/1.1\r\n\r\n", b"\x88\x80abcd", b"\0" * 40]
)
@pytest.mark.parametrize("is_cut", [False, True])
def test_bytes_behind_a_page_are_not_read(daemon: Daemon, behind: bytes, is_cut: bool) -> None:
    head = _LIVEZ + b"\r\n"
    response = exchange(daemon, head, behind) if is_cut else exchange(daemon, head + behind)
    assert status_of(response) == 200
    assert response.endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize(
    "behind", [b"x", b"GET / HTTP/1.1\r\n\r\n", b"\x81\x82abcdxx", b"\xff" * 9]
)
def test_bytes_behind_a_refused_handshake_are_not_read(daemon: Daemon, behind: bytes) -> None:
    foreign = _UPGRADE + b"Origin: http://evil.example\r\n\r\n"
    response = exchange(daemon, foreign + behind)
    assert status_of(response) == 403
    assert response.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("cut", [-1, -2, -3, -4, -5])
def test_a_handshake_may_be_cut_anywhere_and_be_followed_by_frames(
    daemon: Daemon, cut: int
) -> None:
    head = _UPGRADE + b"\r\n"
    ping = b"\x89\x80abcd"
    response = exchange(daemon, head[:cut], head[cut:] + ping)
    assert status_of(response) == 101
    assert b"\x8a\x00" in response


@pytest.mark.parametrize(
    "credentials",
    [
        b"Bearer \xff\x80",
        b"Basic \xff\xfe",
        b"Basic ====",
        b"Basic " + base64.b64encode(b"x:\xed\xa0\x80"),
        b"\xe9",
    ],
)
def test_credentials_that_are_no_ascii_are_only_wrong(daemon: Daemon, credentials: bytes) -> None:
    head = _UPGRADE + b"Authorization: " + credentials + b"\r\n\r\n"
    assert status_of(exchange(daemon, head)) == 101  # who it is decides `initialize`
    assert (
        status_of(exchange(daemon, _LIVEZ + b"Authorization: " + credentials + b"\r\n\r\n")) == 200
    )


def test_two_authorization_headers_get_400(daemon: Daemon) -> None:
    twice = b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"
    response = exchange(daemon, _UPGRADE + twice + b"\r\n")
    assert status_of(response) == 400
    assert response.endswith(b"More than one Authorization header.\n")


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 1\r\n",
        b"Content-Length: 1\r\nExpect: 100-continue\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: \xb2\r\n",
        b"Content-Length: 99999999999999999999999999\r\n",
    ],
)
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_request_with_a_body_gets_400(daemon: Daemon, headers: bytes, is_cut: bool) -> None:
    head = b"POST /livez HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n"
    response = exchange(daemon, head, b"x") if is_cut else exchange(daemon, head + b"x")
    assert status_of(response) == 400


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PROPFIND", b"x"])
def test_a_page_can_only_be_read(daemon: Daemon, method: bytes) -> None:
    response = exchange(daemon, method + b" /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_of(response) == 405


def test_head_gets_the_length_of_a_page_and_not_the_page(daemon: Daemon) -> None:
    response = exchange(daemon, b"HEAD /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_of(response) == 200
    assert b"Content-Length: 3\r\n" in response
    assert response.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "request_line", [b"GET /livez HTTP/1.0", b"GET http://localhost/livez HTTP/1.1"]
)
def test_older_and_longer_request_lines_are_understood(daemon: Daemon, request_line: bytes) -> None:
    assert status_of(exchange(daemon, request_line + b"\r\nHost: localhost\r\n\r\n")) == 200


def test_made_up_requests_are_never_the_fault_of_the_bus(daemon: Daemon) -> None:
    for chunks in islice(requests(seed=10), 1_000):
        send(daemon, chunks)
    assert not daemon.faults()
