"""Sniffing: the first bytes decide whether a connection speaks lines or HTTP; who is let in."""

from __future__ import annotations

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from busd.testing import MemoryBus
from busd.wire.http_gate import HttpGate
from busd.wire.lines import LineFramer
from busd.wire.sniff import Sniffer
from busd.wire.websocket import ServerFramer


def framer_after(*chunks: bytes) -> object:
    """Return the framer of a connection to which these bytes came."""
    bus = MemoryBus()
    peer = bus.connect()
    for chunk in chunks:
        peer.feed(chunk)
    (connection,) = bus.connections.open
    return connection.framer


@pytest.mark.parametrize("start", [b"{", b"[", b"\n", b"\r", b"\t", b" {", b"{x", b" GET / "])
def test_a_brace_a_bracket_or_white_space_begins_lines(start: bytes) -> None:
    assert isinstance(framer_after(start), LineFramer)


@pytest.mark.parametrize(
    "start", ["G", "GET /", "POST /", "PROPFIND /", "x", "get ", "GETS", "hello"]
)
def test_a_letter_begins_an_http_request(start: str) -> None:
    assert isinstance(framer_after(start.encode()), ServerFramer)


def test_nothing_is_decided_before_the_first_byte() -> None:
    assert isinstance(framer_after(), Sniffer)


def test_a_decision_by_one_byte_loses_none() -> None:
    bus = MemoryBus()
    for chunk in (None, 1, 2, 3):
        peer = bus.join(f"agent:p{chunk}", chunk=chunk)
        assert peer.is_connected


@pytest.mark.parametrize(
    "start",
    [b"\0", b"\x16\x03\x01", b"\xef\xbb\xbf{", b"1", b'"x"', b"-", b"~!{", b"hello\n", b"nul\r\n"],
)
def test_what_is_neither_gets_400_and_the_end(start: bytes) -> None:
    peer = MemoryBus().connect()
    peer.feed(start + b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert peer.frames[0] == b"HTTP/1.1 400 Bad Request\r"
    assert not any(b"jsonrpc" in frame for frame in peer.frames)
    assert not peer.is_connected


_INITIALIZE = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientId":"x"}}'


@pytest.mark.parametrize(
    "head",
    [
        b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 74\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n",
        b"X\n",
    ],
)
def test_lines_behind_an_http_request_reach_no_method(head: bytes) -> None:
    bus = MemoryBus()
    peer = bus.connect()
    for line in (head, b"\r\n", _INITIALIZE + b"\n", b"\r\n\r\n" + _INITIALIZE + b"\r\n"):
        if peer.is_connected:
            peer.feed(line)
    assert not any(b"jsonrpc" in frame for frame in peer.frames)
    assert not bus.core.peers


def ask(path: str = "/", *headers: tuple[str, str], allowed: tuple[str, ...] = ()) -> int:
    """Return the status that a request gets, 101 if it is let in."""
    request = Request(path, Headers(headers))
    page = HttpGate(allowed).answer(request)
    return 101 if page is None else page.status


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 101), ("/?x", 101), ("/x", 404), ("//", 404), ("/./", 404), ("", 404)],
)
def test_the_bus_is_at_the_root(path: str, status: int) -> None:
    assert ask(path) == status


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("http://localhost:7892", "localhost:7892", 101),
        ("http://127.0.0.1:7892", "127.0.0.1:7892", 101),
        ("http://[::1]:7892", "[::1]:7892", 101),
        ("https://localhost:7892", "localhost:7892", 101),
        ("http://localhost:7892", "127.0.0.1:7892", 403),
        ("http://localhost:1", "localhost:7892", 403),
        ("http://localhost", "localhost:7892", 403),
        ("http://evil.example:7892", "evil.example:7892", 403),
        ("http://localhost:7892.evil.example", "localhost:7892", 403),
        ("http://localhost:7892@evil.example", "localhost:7892", 403),
        ("http://localhost:x", "localhost:7892", 403),
        ("http://localhost:7892", "localhost:x", 403),
        ("null", "localhost:7892", 403),
        ("", "", 403),
        ("http://[", "localhost:7892", 403),
    ],
)
def test_a_page_is_let_in_only_from_the_bus_itself(origin: str, host: str, status: int) -> None:
    assert ask("/", ("Origin", origin), ("Host", host)) == status


def test_a_listed_origin_is_let_in_whatever_the_host() -> None:
    listed = ("https://chat.example",)
    assert ask("/", ("Origin", "https://chat.example"), allowed=listed) == 101
    assert ask("/", ("Origin", "https://chat.example.evil"), allowed=listed) == 403
    assert ask("/", ("Origin", "https://chat.example"), ("Host", "x"), allowed=listed) == 101


def test_more_than_one_origin_or_host_is_refused() -> None:
    own, host = ("Origin", "http://localhost:1"), ("Host", "localhost:1")
    assert ask("/", own, own, host) == 403
    assert ask("/", own, host, host) == 403
    assert ask("/", own) == 403


def test_who_is_no_browser_has_no_origin_and_is_let_in() -> None:
    assert ask("/", ("Host", "anything")) == 101
