"""How a connection begins, on real sockets: lines or WebSocket, in whatever pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from websockets.sync.client import connect as open_web_socket

from tests.daemons import Daemon, open_daemon
from tests.wire_peers import (
    TEXT,
    Peer,
    Transport,
    WebSocketPeer,
    connect,
    encode_frame,
    open_tcp,
    open_unix,
    upgrade_lines,
)

TRANSPORTS: list[Transport] = ["unix", "tcp", "ws"]


@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_lines_may_come_one_byte_at_a_time(open_peer: Callable[[], Peer], suffix: str) -> None:
    peer = open_peer()
    hello = {"clientId": f"agent:alice{suffix}"}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    for byte in text.encode() + b"\r\n":
        peer.sock.sendall(bytes([byte]))
    assert peer.next_json()["id"] == 1
    peer.expect_nothing()


def test_a_web_socket_may_come_one_byte_at_a_time(
    daemon: Daemon, opened: ExitStack, suffix: str
) -> None:
    peer = WebSocketPeer(opened.enter_context(open_tcp(daemon.port)))
    head = "\r\n".join([*upgrade_lines(), "Host: 127.0.0.1"]) + "\r\n\r\n"
    for byte in head.encode():
        peer.sock.sendall(bytes([byte]))
    while not peer.received.endswith(b"\r\n\r\n"):
        peer.read_some()
    assert peer.received.startswith(b"HTTP/1.1 101 ")
    peer.received.clear()
    peer.initialize(f"agent:alice{suffix}")


def test_what_comes_right_behind_the_handshake_is_answered_after_it(
    daemon: Daemon, opened: ExitStack, suffix: str
) -> None:
    peer = WebSocketPeer(opened.enter_context(open_tcp(daemon.port)))
    head = "\r\n".join([*upgrade_lines(), "Host: 127.0.0.1"]) + "\r\n\r\n"
    hello = {"clientId": f"agent:alice{suffix}"}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    peer.sock.sendall(head.encode() + encode_frame(TEXT, text.encode()))
    while b"\r\n\r\n" not in peer.received:
        peer.read_some()
    assert peer.received.startswith(b"HTTP/1.1 101 ")
    del peer.received[: peer.received.index(b"\r\n\r\n") + 4]
    assert peer.next_json()["id"] == 1


def test_a_unix_socket_speaks_web_socket_too(
    daemon: Daemon, opened: ExitStack, suffix: str
) -> None:
    peer = WebSocketPeer(opened.enter_context(open_unix(daemon.path)))
    head = "\r\n".join([*upgrade_lines(), "Host: localhost"]) + "\r\n\r\n"
    peer.sock.sendall(head.encode())
    while not peer.received.endswith(b"\r\n\r\n"):
        peer.read_some()
    peer.received.clear()
    peer.initialize(f"agent:alice{suffix}")


def test_the_client_of_another_library_is_a_peer_like_any_other(
    daemon: Daemon, suffix: str
) -> None:
    """An existing peer: `websockets` with its defaults, which offer compression."""
    with open_web_socket(f"ws://127.0.0.1:{daemon.port}/") as bus:

        def call(method: str, **params: object) -> object:
            bus.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
            return json.loads(bus.recv(timeout=10))["result"]

        call("initialize", clientId=f"tg:7{suffix}")
        assert call("subscribe", address=f"tg:8{suffix}") == {"success": True}
        bus.send(
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 2,
                    "method": "sendMessage",
                    "params": {"to": f"tg:8{suffix}", "payload": {"text": "é" * 70_000}},
                }
            )
        )
        message = json.loads(bus.recv(timeout=10))
        assert message["params"]["payload"] == {"text": "é" * 70_000}
        bus.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"success": True}}))
        answer = json.loads(bus.recv(timeout=10))
        assert answer["result"]["acks"][0]["clientId"] == f"tg:7{suffix}"


def test_plain_asyncio_serves_every_transport() -> None:
    with open_daemon("asyncio") as daemon, ExitStack() as opened:
        peers = []
        for transport in TRANSPORTS:
            peer = connect(daemon, transport)
            opened.callback(peer.close)
            peer.initialize(f"agent:{transport}")
            peers.append(peer)
        for sender in peers:
            for transport, receiver in zip(TRANSPORTS, peers, strict=True):
                request_id = sender.send_message(f"agent:{transport}", {"n": 1})
                receiver.answer(receiver.next_message(), {"message": transport})
                (ack,) = sender.answer_to(request_id)["result"]["acks"]
                assert ack["message"] == transport
