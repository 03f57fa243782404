"""Loops: plugins name causes by themselves, are stopped like peers, and may watch for loops."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

import pytest

from tests.daemons import PATIENCE_SECONDS, Loop
from tests.http_pages import fetch
from tests.plugin.conftest import open_plugged
from tests.wire_peers import connect

LOOPING = '''"""Looping: two addresses that answer each other for ever, and one that passes on."""

from __future__ import annotations

from msgspec import Raw

from busd import Context, Plugin

plugin = Plugin("looping")


@plugin.handles(to="app:ping")
def ping(payload: Raw, ctx: Context) -> None:
    ctx.post("app:pong", payload)


@plugin.handles(to="app:pong")
def pong(payload: Raw, ctx: Context) -> None:
    ctx.post("app:ping", payload)


@plugin.handles(to="app:relay")
def relay(payload: Raw, ctx: Context) -> None:
    ctx.forward("agent:a")


@plugin.handles(to="app:durable")
def relay_durably(payload: Raw, ctx: Context) -> None:
    ctx.forward("agent:a", durable=True)


@plugin.on_loop
def looped(path: tuple[str, ...], rule: str, ctx: Context) -> None:
    with (ctx.state / "loops").open("a") as file:
        file.write(f"{rule} {' '.join(path)}\\n")
'''


def test_a_plugin_that_answers_itself_is_stopped_and_everybody_is_told(loop: Loop) -> None:
    with ExitStack() as opened:
        plugged = opened.enter_context(
            open_plugged(loop, {"looping.py": LOOPING}, {"loops.max_hops": 20})
        )
        daemon = plugged.daemon
        with closing(connect(daemon, "unix")) as peer:
            peer.initialize("agent:a")
            peer.call("sendMessage", {"to": "app:ping", "payload": {}})
        end = time.monotonic() + PATIENCE_SECONDS
        while not (told := daemon.folder / "state" / "loops").exists():
            assert time.monotonic() < end, daemon.log()
            plugged.call("ping")
        path = ["plugin:looping"] * 21 + ["app:pong"]
        assert told.read_text().split() == ["loop.hops", *path]
        assert "loop.found" in daemon.log()
        assert "message.refused" in daemon.log()
        page = fetch(daemon, "/metrics").text
        assert 'busd_loops_found_total{rule="loop.hops"} 1.0' in page
        assert 'busd_looping_messages_refused_total{rule="loop.hops"} 1.0' in page


@pytest.mark.parametrize("address", ["app:relay", "app:durable"])
def test_a_message_that_a_plugin_passes_on_goes_on_with_its_chain(loop: Loop, address: str) -> None:
    with ExitStack() as opened:
        plugged = opened.enter_context(
            open_plugged(loop, {"looping.py": LOOPING}, {"loops.max_hops": 3})
        )
        with closing(connect(plugged.daemon, "unix")) as peer:
            peer.initialize("agent:a")
            cause = ""
            for number in range(3):
                members = {"messageId": f"m{number}", "causedBy": cause}
                answer = peer.answer_to(peer.send_message(address, **members))
                cause = f"m{number}"
            assert answer["error"]["data"]["hops"] == 4
