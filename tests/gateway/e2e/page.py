"""Pages that chat with a gateway by a WebSocket, and the server that they come from."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.daemons import PATIENCE_SECONDS

# The page says its words, shows each frame that means something as a line, and posts what it shows.
PAGE = """<!doctype html><meta charset="utf-8"><title>chat</title><ul></ul><script>
const list = document.querySelector('ul');
const show = (text) => { const li = document.createElement('li'); li.textContent = text;
  list.append(li); };
const done = () => fetch('/done', {method: 'POST', body: JSON.stringify(
  {origin: location.origin, lines: [...list.children].map((li) => li.textContent)})});
const chats = {
  group: {
    path: '/ws/messaging/square/',
    words: {message_type: 'chat', sender: {id: 'zhang', type: 'user', name: '张三'},
      payload: {text: 'tell 你|好'}},
    text: (frame) => frame.payload.text,
    isLast: (frame) => frame.message_type === 'agent_response' && !frame.payload.is_thinking,
  },
  agentiq: {
    path: '/websocket?conversation_id=page',
    words: {type: 'user_message', schema_type: 'chat_stream', id: 'm1', content: {messages: [
      {role: 'user', content: [{type: 'text', text: 'tell Good |day'}]}]}},
    text: (frame) => frame.content.text,
    isLast: (frame) => frame.status === 'complete' && frame.type === 'system_response_message',
  },
};
const chat = chats[FORMAT];
const web = new WebSocket('ws://' + GATEWAY + chat.path);
web.onopen = () => { show('open'); web.send(JSON.stringify(chat.words)); };
web.onmessage = (event) => {
  const frame = JSON.parse(event.data);
  if (chat.text(frame)) show(chat.text(frame));
  if (chat.isLast(frame)) { web.onclose = null; web.close(); done(); }
};
web.onclose = (event) => { show('closed ' + event.code); done(); };
</script>"""


class PageServer:
    """Serves one page on a port of its own, and takes what it shows in the end."""

    def __init__(self) -> None:
        self.page = b""
        self.shown: dict[str, Any] = {}
        self.is_done = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_SECONDS)

    def set_page(self, dialect: str, gateway: str) -> None:
        """Serve a page from now on that chats in a format."""
        text = PAGE.replace("FORMAT", json.dumps(dialect)).replace("GATEWAY", json.dumps(gateway))
        self.page = text.encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(server.page if self.path == "/page" else b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._send(b"")
                server.shown = json.loads(body)
                server.is_done.set()

            def _send(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *about: Any) -> None:
                pass

        return Handler


@contextmanager
def open_page_server() -> Iterator[PageServer]:
    server = PageServer()
    try:
        yield server
    finally:
        server.close()
