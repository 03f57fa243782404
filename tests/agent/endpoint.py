"""An endpoint for the tests: speaks HTTP and chat completions as the real ones do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Asked"], None]


class Asked(BaseHTTPRequestHandler):
    """One request; what is sent back is up to the test."""

    protocol_version = "HTTP/1.1"
    server: Endpoint
    body: Any

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(self)
        self.server.answers.pop(0)(self)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def write_chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


class Endpoint(ThreadingHTTPServer):
    """Answers each request with the next of `answers`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is no news."""


@contextmanager
def open_endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        thread = threading.Thread(target=endpoint.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield endpoint
        finally:
            endpoint.shutdown()
            thread.join()


def event(**choice: Any) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def streamed(*words: str, is_cut: bool = False) -> Answer:
    """Answer word by word, cut into chunks that have nothing to do with the events."""

    def answer(asked: Asked) -> None:
        asked.begin_stream()
        data = b": hello\n\n" + event(delta={"role": "assistant", "content": ""})
        data += b"".join(event(delta={"content": word}) for word in words)
        if not is_cut:
            data += event(delta={}, finish_reason="stop")
            data += b'data: {"choices": [], "usage": {"total_tokens": 3}}\n\ndata: [DONE]\n\n'
        for start in range(0, len(data), 50):
            asked.write_chunk(data[start : start + 50])
        asked.write_chunk(b"")

    return answer


def refused(status: int, message: str = "", **headers: str) -> Answer:
    body = json.dumps({"error": {"message": message, "type": "t", "code": None}}).encode()
    return lambda asked: asked.send(status, body, **headers)
