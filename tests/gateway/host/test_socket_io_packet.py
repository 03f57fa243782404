"""Packets of Socket.IO: what is read, and what is refused."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from socketio.packet import Packet as TheirPacket

from busd.gateway import socket_io_packet as packets
from busd.gateway.socket_io_packet import BadPacket, Kind, Packet, parse_packet

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
NAMESPACES = st.sampled_from(["/", "/agents", "/tasks/1"])


def members_of(packet: Packet) -> tuple[Any, ...]:
    return packet.kind, packet.namespace, packet.ack, packet.data


@pytest.mark.parametrize(
    ("text", "packet"),
    [
        ("0", (Kind.CONNECT, "/", None, None)),
        ('0{"token":"t"}', (Kind.CONNECT, "/", None, {"token": "t"})),
        ("0/agents,", (Kind.CONNECT, "/agents", None, None)),
        ("0/agents", (Kind.CONNECT, "/agents", None, None)),
        ("0/agents?a=1,{}", (Kind.CONNECT, "/agents", None, {})),
        ("1/agents,", (Kind.DISCONNECT, "/agents", None, None)),
        ('2["m"]', (Kind.EVENT, "/", None, ["m"])),
        ('27["m",{"a":1}]', (Kind.EVENT, "/", 7, ["m", {"a": 1}])),
        ('2/agents,12["m",1,2]', (Kind.EVENT, "/agents", 12, ["m", 1, 2])),
        ("3/agents,12[]", (Kind.ACK, "/agents", 12, [])),
        (
            '51-["m",{"_placeholder":true,"num":0}]',
            (Kind.BINARY_EVENT, "/", None, ["m", {"_placeholder": True, "num": 0}]),
        ),
        ('52-/agents,7["m"]', (Kind.BINARY_EVENT, "/agents", 7, ["m"])),
    ],
)
def test_packets_of_clients_are_read(text: str, packet: tuple[Any, ...]) -> None:
    assert members_of(parse_packet(text)) == packet


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "x",
        "²",
        "2[",
        '2["m"',
        '2["m"]]',
        '2["m",NaN]',
        "2" + "[" * 100_000,
        "2" + '{"a":' * 100_000,
        '2["\ud800"]',
        "2/" + "n" * 1_000 + ',["m"]',
        "2" + "9" * 1_000 + '["m"]',
    ],
)
def test_malformed_packets_are_refused(text: str) -> None:
    with pytest.raises(BadPacket):
        _ = parse_packet(text).data


def test_data_are_not_decoded_before_they_are_asked_for() -> None:
    assert parse_packet('27["m",') == Packet(Kind.EVENT, "/", 7, '["m",')


@pytest.mark.parametrize(
    "data", ["{}", "[]", '"m"', "[1]", "[null]", '["connect"]', '["disconnect",1]', "[[]]"]
)
def test_an_event_has_a_name_of_its_own(data: str) -> None:
    with pytest.raises(BadPacket):
        _ = parse_packet(f"2{data}").event


def test_an_event_carries_one_value_or_none() -> None:
    assert parse_packet('2["m"]').event == ("m", None)
    assert parse_packet('2["m",[1]]').event == ("m", [1])
    assert parse_packet('2["m",1,2]').event == ("m", 1)


@given(NAMESPACES, st.integers(0, 10**9) | st.none(), st.text(min_size=1), JSON)
def test_what_their_library_writes_is_read(
    namespace: str, number: int | None, event: str, data: Any
) -> None:
    written = TheirPacket(2, [event, data], namespace, number, binary=False).encode()
    assert members_of(parse_packet(written)) == (Kind.EVENT, namespace, number, [event, data])


@given(NAMESPACES, st.integers(0, 10**9), st.text(min_size=1), JSON)
def test_their_library_reads_what_is_written(
    namespace: str, number: int, event: str, data: Any
) -> None:
    said = [event] if data is None else [event, data]
    encoded = packets.encode_event(namespace, event, data)
    assert b"\x1e" not in encoded  # it separates the packets of a poll
    theirs = TheirPacket(encoded_packet=encoded.decode())
    assert (theirs.namespace or "/", theirs.data, theirs.id) == (namespace, said, None)
    theirs = TheirPacket(encoded_packet=packets.encode_ack(namespace, number, data).decode())
    assert (theirs.id, theirs.data) == (number, [] if data is None else [data])
    for encoded, kind in (
        (packets.encode_connected(namespace, "s"), 0),
        (packets.encode_disconnected(namespace), 1),
        (packets.encode_refused(namespace, event), 4),
    ):
        theirs = TheirPacket(encoded_packet=encoded.decode())
        assert (theirs.packet_type, theirs.namespace or "/") == (kind, namespace)


@given(st.text())
def test_any_text_is_a_packet_or_refused(text: str) -> None:
    try:
        _ = parse_packet(text).data
    except BadPacket:
        pass


@pytest.mark.parametrize("piece", ["1", "/", ",", "?", "-", "2[", '"', "\\", "0/a?", "9-"])
def test_a_hostile_packet_costs_no_more_than_a_long_one(piece: str) -> None:
    text = "2" + piece * (1_000_000 // len(piece))
    before = time.process_time()
    with pytest.raises(BadPacket):
        _ = parse_packet(text).event
    assert time.process_time() - before < 0.5


def test_plain_json_is_written() -> None:
    encoded = packets.encode_event("/", "m", {"text": "你好"})
    assert json.loads(encoded[1:]) == ["m", {"text": "你好"}]
