"""The samples of the page about bridges work as they stand."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from busd import Bridge, Incoming, SyncClient
from busd.plugin.plugin import Plugin
from tests.cli.terminal import Terminal
from tests.daemons import PATIENCE_SECONDS, Daemon
from tests.pages import samples_of, text_of

[SAMPLE, IN_PLUGIN] = [text for _, text in samples_of(text_of("docs/bridge-kit.md"), "python")]


class ChatServer:
    """The chat server that the sample connects to."""

    def __init__(self, connection: socket.socket, lines: BinaryIO) -> None:
        self._connection = connection
        self._lines = lines

    def say(self, **said: str) -> None:
        self._connection.sendall(json.dumps(said).encode() + b"\n")

    def next(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self._lines.readline())
        return line


@contextmanager
def connected(listener: socket.socket) -> Iterator[ChatServer]:
    connection, _ = listener.accept()
    connection.settimeout(PATIENCE_SECONDS)
    with connection, connection.makefile("rb") as lines:
        yield ChatServer(connection, lines)


def wait_for(name: str, peer: SyncClient) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while name not in [each["clientId"] for each in peer.status()["connections"]]:
        assert time.monotonic() < end, f"{name} did not come"


def test_the_bridge_of_the_page_connects_a_chat_server(daemon: Daemon, tmp_path: Path) -> None:
    assert len(SAMPLE.splitlines()) < 55
    program = tmp_path / "bridge.py"
    program.write_text(SAMPLE)
    terminal = Terminal(tmp_path, f"unix:{daemon.path}")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        SyncClient("router", address=f"unix:{daemon.path}") as router,
    ):
        listener.settimeout(PATIENCE_SECONDS)

        @router.on("tg_message")
        def answer(message: Incoming) -> None:
            payload = message.payload
            text = f"you said {payload['content']['text']}. " + "word " * 100
            content = {"text": text}
            reply = {"type": "tg_reply", "messageId": "r1", "content": content}
            router.post(payload["from"], reply)

        router.subscribe("system:route")
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        with (
            terminal.start_any([sys.executable, str(program), where]) as running,
            connected(listener) as chat,
        ):
            wait_for("lines-bridge", router)
            for _ in range(2):  # the chat server delivers it twice
                chat.say(id="4711", room="#busd", user="ann", text="hi")
            found = [chat.next() for _ in range(4)]
            assert [each for each in found if "ack" in each] == [{"ack": "4711"}] * 2
            posts = [each for each in found if "text" in each]
            assert [each["room"] for each in posts] == ["#busd", "#busd"]
            assert posts[0]["text"].startswith("you said hi. word")
            assert posts[1]["text"].endswith("word")
            assert running.interrupt() == (0, "", "")


def test_the_plugin_of_the_page_runs_nothing_in_the_bus() -> None:
    names: dict[str, Any] = {"__name__": "sample"}
    exec(compile(IN_PLUGIN, "sample", "exec"), names)
    plugin: Plugin = names["plugin"]
    assert plugin.has_no_daemon_part
    assert plugin.bridge_program is not None
    assert plugin.bridge_program.serve is names["serve"]
    assert plugin.bridge_program.table is names["ToyTable"]


def test_a_plugin_has_one_bridge_that_says_what_its_settings_are() -> None:
    plugin = Plugin("toy")
    with pytest.raises(TypeError, match=r"async def serve\(bridge, table\)"):

        @plugin.bridge
        def serve(bridge: Bridge, table: Any) -> None: ...

    with pytest.raises(TypeError, match="annotate table with a struct"):

        @plugin.bridge
        async def serve_unknown(bridge: Bridge, table: dict[str, str]) -> None: ...

    assert not plugin.has_no_daemon_part
