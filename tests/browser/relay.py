"""A server of one page that passes everything else on to the bus, and keeps what was sent.

To the browser page and bus are one site: what a page of a rebound host name would see.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.browser.page import page_for
from tests.daemons import PATIENCE_SECONDS


class Relay:
    """Listens on a port of its own until it is closed."""

    def __init__(self, bus_port: int, target: str, *, with_socket: bool) -> None:
        self._bus_port = bus_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._page = page_for(target.format(port=self.port), with_socket=with_socket)
        self.sent: list[bytes] = []  # to the bus, by each connection
        self.said: dict[str, str] = {}  # by the page, of each attempt
        self.is_done = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.settimeout(PATIENCE_SECONDS)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, suppress(OSError):
            first = sock.recv(65_536)
            if first.startswith(b"GET /page "):
                sock.sendall(_response(self._page))
            elif first.startswith(b"POST /done "):
                self._take_outcome(sock, first)
            elif first and b" /favicon.ico " not in first:
                self._pass_on(sock, first)

    def _take_outcome(self, sock: socket.socket, received: bytes) -> None:
        while b"\r\n\r\n" not in received or not received.endswith(b"}"):
            received += sock.recv(65_536)
        self.said = json.loads(received.partition(b"\r\n\r\n")[2])
        sock.sendall(_response(b"ok"))
        self.is_done.set()

    def _pass_on(self, sock: socket.socket, first: bytes) -> None:
        number = len(self.sent)
        self.sent.append(first)
        with socket.create_connection(("127.0.0.1", self._bus_port), PATIENCE_SECONDS) as bus:
            bus.sendall(first)
            back = threading.Thread(target=_copy, args=(bus, sock), daemon=True)
            back.start()
            with suppress(OSError):
                while chunk := sock.recv(65_536):
                    self.sent[number] += chunk
                    bus.sendall(chunk)
            back.join(PATIENCE_SECONDS)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65_536):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_RDWR)


def _response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


@contextmanager
def open_relay(bus_port: int, target: str, *, with_socket: bool = True) -> Iterator[Relay]:
    relay = Relay(bus_port, target, with_socket=with_socket)
    try:
        yield relay
    finally:
        relay.close()
