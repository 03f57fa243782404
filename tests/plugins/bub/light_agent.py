"""A worker that needs nothing but a socket and JSON: it says back what it hears.

What else it does is told by the environment: BEHAVE = echo, silent, slow:SECONDS, stranger,
exit:CODE, and by the words it gets: `die` (once in its life), `die always`, `die, attempt` (once,
then it says which attempt it got), `pid`, `wait`, `heard`, `env NAME`. CONNECT=tcp has it connect
where agents of the Bub project do.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class LightAgent:
    """One connection to the bus."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.talkto = said("--talkto")
        self.data = Path(said("--workspace")) / "data"
        self.heard: list[str] = []
        self.out = connect()
        self.lines = self.out.makefile("rb")

    def send(self, **members: Any) -> None:
        self.out.sendall(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")

    def run(self) -> None:
        wanted = {"deliveryAttempt": True}
        params = {"clientId": self.client_id, "extensions": wanted}
        self.send(id=1, method="initialize", params=params)
        for line in self.lines:
            frame = json.loads(line)
            if frame.get("method") == "processMessage":
                self.hear(frame["id"], frame["params"])

    def hear(self, number: int, params: dict[str, Any]) -> None:
        payload = params["payload"]
        self.heard.append(payload["type"])
        if payload["type"] == "configure":
            self.talkto = payload["content"].get("talkto", self.talkto)
            (self.data / "configured").write_text(json.dumps(payload["content"]))
        elif payload["type"] == "tg_message":
            text = payload["content"]["text"]
            self.obey(text)
            if text == "wait":
                return  # owes the ack
            attempt = params.get("deliveryAttempt", 1)
            said = f"attempt {attempt}" if text == "die, attempt" else self.answer(text)
            self.reply(said, params["messageId"])
        self.send(id=number, result={"success": True, "payload": {"by": self.client_id}})

    def obey(self, text: str) -> None:
        died = self.data / "died"
        is_first = text in ("die", "die, attempt") and not died.exists()
        if text == "die always" or is_first:
            died.write_text("once")
            os.kill(os.getpid(), signal.SIGKILL)

    def answer(self, text: str) -> str:
        if text == "heard":
            return " ".join(self.heard)
        if text == "pid":
            return str(os.getpid())
        if text.startswith("env "):
            return os.environ.get(text.removeprefix("env "), "")
        return f"{said('--client-id')}: {text}"

    def reply(self, text: str, message_id: str) -> None:
        payload = {
            "type": "tg_reply",
            "from": self.client_id,
            "reply_to_message_id": message_id,
            "content": {"text": text},
        }
        params = {"from": self.client_id, "to": self.talkto, "payload": payload}
        self.send(method="sendMessage", params=params)


def connect() -> socket.socket:
    """Connect to the bus; one that is not there may come back."""
    while True:
        is_over_tcp = os.environ.get("CONNECT") == "tcp"
        sock = socket.socket(socket.AF_INET if is_over_tcp else socket.AF_UNIX)
        try:
            if is_over_tcp:
                address = urlsplit(os.environ["BUB_BUS_URL"])
                sock.connect((address.hostname, address.port))
            else:
                sock.connect(os.environ["BUSD_ADDRESS"].removeprefix("unix:"))
            return sock
        except OSError:
            sock.close()
            time.sleep(0.05)


def said(flag: str) -> str:
    return sys.argv[sys.argv.index(flag) + 1]


def main() -> None:
    how, _, detail = os.environ.get("BEHAVE", "echo").partition(":")
    print("light agent:", how, file=sys.stderr, flush=True)
    if how == "exit":
        sys.exit(int(detail))
    if how == "silent":
        time.sleep(3600)
    if how == "slow":
        time.sleep(float(detail))  # as an interpreter that imports a lot
    client_id = "agent:somebody-else" if how == "stranger" else said("--client-id")
    while True:
        try:
            LightAgent(client_id).run()
        except OSError:
            continue  # the bus is gone: it may come back


if __name__ == "__main__":
    main()
