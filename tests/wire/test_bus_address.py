"""Addresses of a bus: what can be written, what it means, and what is wrong with the rest."""

from __future__ import annotations

import pytest

from busd.errors import ConfigError
from busd.wire.bus_address import DEFAULT_PORT, BusAddress, parse_bus_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:/run/busd/bus.sock", BusAddress("unix", "/run/busd/bus.sock")),
        ("unix:///run/busd/bus.sock", BusAddress("unix", "/run/busd/bus.sock")),
        ("unix:bus.sock", BusAddress("unix", "bus.sock")),
        ("tcp://127.0.0.1:7892", BusAddress("tcp", "", "127.0.0.1", 7892)),
        ("tcp://127.0.0.1:0", BusAddress("tcp", "", "127.0.0.1", 0)),
        ("tcp://localhost/", BusAddress("tcp", "", "localhost", DEFAULT_PORT)),
        ("tcp://[::1]:1", BusAddress("tcp", "", "::1", 1)),
        ("tls://bus.example:443", BusAddress("tls", "", "bus.example", 443)),
        ("ws://localhost:7892", BusAddress("ws", "/", "localhost", 7892)),
        ("ws://localhost:7892/bus", BusAddress("ws", "/bus", "localhost", 7892)),
        ("wss://bus.example/", BusAddress("wss", "/", "bus.example", DEFAULT_PORT)),
    ],
)
def test_an_address_is_read(text: str, address: BusAddress) -> None:
    assert parse_bus_address(text) == address
    assert parse_bus_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not an address of a bus"),
        ("/run/bus.sock", "is not an address of a bus"),
        ("localhost:7892", "is not an address of a bus"),
        ("http://localhost:7892", "is not an address of a bus"),
        ("tcp:localhost:7892", "is not an address of a bus"),
        ("unix:", "names no path"),
        ("unix://", "names no path"),
        ("unix:/a\0b", "names no path"),
        ("unix:/" + "x" * 107, "at most 107 bytes"),
        ("unix:/" + "é" * 54, "at most 107 bytes"),
        ("tcp://", "names no host"),
        ("tcp://:7892", "names no host"),
        ("tcp://localhost:port", "'port'"),
        ("tcp://localhost:65536", "Port out of range"),
        ("tcp://localhost:1/path", "a tcp address has no path"),
        ("ws://localhost:1/?x=1", "only host, port and path"),
        ("ws://localhost:1/#x", "only host, port and path"),
        ("tcp://[::1:7892", "Invalid IPv6"),
    ],
)
def test_what_is_no_address_is_refused_with_a_reason(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_bus_address(text)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        "ws://me:swordfish@localhost:99999/",
        "ws://me:swordfish@localhost:7892/?x",
        "tcp://me:swordfish@localhost:7892/path",
        "tcp://me:swordfish@:7892",
        "http://me:swordfish@localhost:7892/",
        "tcp:me:swordfish@localhost",
    ],
)
def test_a_refusal_keeps_a_password_to_itself(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_bus_address(text)
    assert "swordfish" not in str(refusal.value)


def test_the_password_of_a_url_is_a_token_that_is_never_shown() -> None:
    address = parse_bus_address("ws://me:sword%2Ffish@localhost:7892/")
    assert address.token == "sword/fish"
    assert str(address) == "ws://localhost:7892/"
    assert "fish" not in repr(address)


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("unix:/run/bus.sock", True),
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.8.8.8:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://localhost:1", True),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("tcp://192.0.2.1:1", False),
        ("tcp://localhost.example:1", False),
        ("tcp://bus.example:1", False),
    ],
)
def test_only_this_host_is_loopback(text: str, is_loopback: bool) -> None:
    assert parse_bus_address(text).is_loopback is is_loopback


def test_an_address_says_whether_it_is_encrypted_and_whether_it_is_a_web_socket() -> None:
    kinds = {scheme: BusAddress(scheme, "", "h", 1) for scheme in ("tcp", "tls", "ws", "wss")}
    assert [name for name, each in kinds.items() if each.is_encrypted] == ["tls", "wss"]
    assert [name for name, each in kinds.items() if each.is_web_socket] == ["ws", "wss"]
