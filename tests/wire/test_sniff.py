"""Sniffing: the first bytes decide whether a connection speaks lines or HTTP; who is let in."""

from __future__ import annotations

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from busd.testing import MemoryBus
from busd.wire.doorman import Doorman
from busd.wire.lines import LineFramer
from busd.wire.sniff import Sniffer
from busd.wire.websocket import ServerFramer


def framer_after(*chunks: bytes) -> object:
    """Give the framer of a connection to which these bytes came."""
    bus = MemoryBus()
    peer = bus.connect()
    for chunk in chunks:
        peer.feed(chunk)
    (connection,) = bus.connections.open
    return connection.framer


@pytest.mark.parametrize(
    "start", [b"{", b"[", b"\n", b" {", b"x", b"get ", b"GETS", b"GET\t", b"\0"]
)
def test_anything_but_an_http_request_is_lines(start: bytes) -> None:
    assert isinstance(framer_after(start), LineFramer)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH"])
def test_an_http_request_is_http(method: str) -> None:
    assert isinstance(framer_after(f"{method} /".encode()), ServerFramer)


@pytest.mark.parametrize("start", [b"", b"G", b"GET", b"P", b"POST", b"O"])
def test_what_could_be_either_is_not_decided_yet(start: bytes) -> None:
    assert isinstance(framer_after(start) if start else framer_after(), Sniffer)


def test_bytes_that_waited_for_the_decision_are_not_lost() -> None:
    bus = MemoryBus()
    for chunk in (None, 1, 2, 3):
        peer = bus.join(f"agent:p{chunk}", chunk=chunk)
        assert peer.is_connected
    peer = bus.connect()
    for piece in (b"P", b"UT", b"!", b"\n"):
        peer.feed(piece)
    assert b"-32700" in peer.frames[0]


def ask(path: str = "/", *headers: tuple[str, str], allowed: tuple[str, ...] = ()) -> int:
    """Give the status that a request gets, 101 if it is let in."""
    request = Request(path, Headers(headers))
    page = Doorman(allowed).look_at(request)
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
