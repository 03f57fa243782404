"""A changed plugin is restarted: whoever writes to it meanwhile is told to try again."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.daemons import PATIENCE_SECONDS, Loop
from tests.plugin.conftest import Plugged, joined, open_plugged
from tests.wire_peers import Peer

_RESTARTS = 15
BUSY = "peer is busy"
_AT_ONCE = 5

# Says in `diary` what it does, and does it when `go` is there.
STAGED = '''"""Staged: starts and answers when it may."""

from __future__ import annotations

import anyio
from msgspec import Raw, Struct

from busd import Context, Plugin

VERSION = 1
plugin = Plugin("staged", version=str(VERSION))


class Said(Struct):
    version: int


def note(ctx: Context, line: str) -> None:
    with (ctx.state / "diary").open("a") as file:
        file.write(f"{line} {VERSION}\\n")


async def cue(ctx: Context, name: str) -> None:
    while not (ctx.state / name).exists():
        await anyio.sleep(0.005)


@plugin.on_start
async def start(ctx: Context) -> None:
    note(ctx, "start")
    ctx.subscribe("app:always")
    ctx.subscribe(f"app:only-{VERSION}")
    ...  # the last word


@plugin.on_stop
async def stop(ctx: Context) -> None:
    await anyio.sleep(0)
    note(ctx, "stop")


@plugin.handles(to=("app:staged", "app:always", "app:only-*"))
async def answer(payload: Raw, ctx: Context) -> Said:
    await cue(ctx, "go")
    return Said(VERSION)


@plugin.handles(to="app:slow")
async def answer_late(payload: Raw, ctx: Context) -> Said:
    note(ctx, "slow")
    await cue(ctx, "answer")
    return Said(VERSION)


@plugin.method("staged.version")
async def version(params: Said) -> Said:
    """Name the version."""
    return Said(VERSION)


@plugin.checks
def check(sender: str, type_name: str) -> str | None:
    return "never" if type_name == "forbidden" else None
'''
AT_ONCE = "pass"
ON_CUE = 'await cue(ctx, "go")'
FAILS = 'raise RuntimeError("no luck")'


def version(number: int, start: str = ON_CUE) -> str:
    text = STAGED.replace("VERSION = 1", f"VERSION = {number}")
    return text.replace("...  # the last word", start)


class Stage:
    """The plugin, and what it waits for."""

    def __init__(self, plugged: Plugged) -> None:
        self.plugged = plugged
        self.state: Path = plugged.daemon.folder / "state"

    def cue(self, name: str = "go") -> None:
        (self.state / name).touch()

    def diary(self) -> list[str]:
        return (self.state / "diary").read_text().splitlines()

    def change(self, text: str) -> None:
        """Have a changed plugin looked at; returns at once."""
        self.plugged.write("staged.py", text)
        self.plugged.daemon.signal(signal.SIGHUP)

    def until_noted(self, line: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while line not in self.diary():
            assert time.monotonic() < end, self.plugged.daemon.log()
            self.plugged.call("ping")

    def until_reloaded(self, times: int = 1) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while self.reloads() < times:
            assert time.monotonic() < end, self.plugged.daemon.log()
            self.plugged.call("ping")

    def reloads(self) -> int:
        return self.plugged.daemon.log().count("settings.reloaded")


def open_stage(loop: Loop, opened: ExitStack, **settings: Any) -> Stage:
    folders = open_plugged(loop, {"staged.py": version(1, AT_ONCE)}, settings)
    return Stage(opened.enter_context(folders))


def outcome(peer: Peer, request: int) -> Any:
    """Return which version has answered, or what became of the message."""
    result = peer.answer_to(request)["result"]
    if not result["acks"]:
        return result["undelivered"]
    [ack] = result["acks"]
    return ack["payload"]["version"] if ack["success"] else ack["message"]


def test_every_message_is_answered_or_told_to_wait_however_often_a_plugin_is_restarted(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    stage.cue()
    peer = joined(stage.plugged, "tg:1", opened)
    heard: list[Any] = []
    for number in range(2, 2 + _RESTARTS):
        stage.change(version(number))
        while stage.reloads() < number - 1:
            sent = [peer.send_message("app:staged") for _ in range(_AT_ONCE)]
            heard += [outcome(peer, each) for each in sent]
    answered = [each for each in heard if each != BUSY]
    assert answered == sorted(answered)  # versions, and nothing else
    assert outcome(peer, peer.send_message("app:staged")) == 1 + _RESTARTS


def test_whoever_writes_to_a_plugin_that_is_restarting_is_told_to_try_again(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    peer = joined(stage.plugged, "tg:1", opened)
    stage.change(version(2))
    stage.until_noted("start 2")
    assert stage.diary() == ["start 1", "stop 1", "start 2"]  # never both at work
    for to in ("app:staged", "app:always", "plugin:staged"):
        [ack] = peer.answer_to(peer.send_message(to))["result"]["acks"]
        assert (ack["message"], ack["shouldRetry"], ack["retrySeconds"]) == (BUSY, True, 1)
    refused = peer.answer_to(peer.request("staged.version", {"version": 0}))["error"]
    assert (refused["code"], refused["data"]["retrySeconds"]) == (-32004, 1)
    stage.cue()
    stage.until_reloaded()
    assert outcome(peer, peer.send_message("app:always")) == 2
    assert peer.call("staged.version", {"version": 0}) == {"version": 2}
    [status] = [
        it for it in peer.call("getStatus")["connections"] if it["clientId"] == "plugin:staged"
    ]
    assert status["clientInfo"]["version"] == "2"


def test_what_the_old_plugin_is_at_is_finished_before_it_stops(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    stage.cue()
    peer = joined(stage.plugged, "tg:1", opened)
    slow = peer.send_message("app:slow")
    stage.until_noted("slow 1")
    stage.change(version(2))
    asked = {"version": 0}
    while peer.answer_to(peer.request("staged.version", asked)).get("result") == {"version": 1}:
        pass  # until it takes nothing new
    assert outcome(peer, peer.send_message("app:staged")) == BUSY
    stage.cue("answer")
    assert outcome(peer, slow) == 1
    stage.until_reloaded()
    assert outcome(peer, peer.send_message("app:staged")) == 2
    assert stage.diary() == ["start 1", "slow 1", "stop 1", "start 2"]


def test_what_only_the_old_plugin_subscribed_to_has_no_route_any_more(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    stage.cue()
    peer = joined(stage.plugged, "tg:1", opened)
    assert outcome(peer, peer.send_message("app:only-1")) == 1
    stage.change(version(2).replace(', "app:only-*")', ")"))
    stage.until_reloaded()
    addresses = ("app:only-1", "app:only-3", "app:always", "app:staged")
    sent = [peer.send_message(each) for each in addresses]
    assert [outcome(peer, each) for each in sent] == ["no route", "no route", 2, 2]
    stage.plugged.write("staged.py", version(3).replace('Plugin("staged"', 'Plugin("other"'))
    stage.plugged.reload()
    assert outcome(peer, peer.send_message("app:staged")) == 3
    assert outcome(peer, peer.send_message("plugin:staged")) == "no route"


def test_a_change_that_cannot_start_is_faulty_until_it_is_mended(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    stage.plugged.daemon.is_blamed = True
    peer = joined(stage.plugged, "tg:1", opened)
    stage.change(version(2, f"{ON_CUE}; {FAILS}"))
    stage.until_noted("start 2")
    stage.cue()
    stage.until_reloaded()
    assert stage.diary() == ["start 1", "stop 1", "start 2"]
    kept = peer.send_message("app:staged")  # for the version that will be mended
    assert outcome(peer, kept) == "kept"
    assert peer.answer_to(peer.request("staged.version", {"version": 0}))["error"]["code"] == -32601
    found = stage.plugged.call("bus.listPlugins")["plugins"]
    [staged] = [each for each in found if each["name"] == "staged"]
    assert (staged["state"], staged["version"]) == ("faulty", "2")
    assert staged["lastFault"] == "on_start: RuntimeError: no luck"
    stage.plugged.write("staged.py", version(3))
    stage.plugged.reload()
    assert outcome(peer, peer.send_message("app:staged")) == 3
    assert stage.plugged.listed()["staged"]["state"] == "running"


def test_a_change_that_cannot_be_imported_leaves_the_old_plugin_running(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    stage.plugged.daemon.is_blamed = True
    stage.cue()
    peer = joined(stage.plugged, "tg:1", opened)
    stage.plugged.write("staged.py", "this is no Python")
    stage.plugged.reload()
    assert outcome(peer, peer.send_message("app:staged")) == 1
    assert stage.plugged.listed()["staged"]["state"] == "outdated"


def test_a_reload_names_the_plugins_that_it_started_restarted_and_stopped(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    stage.cue()
    stage.plugged.write("staged.py", version(2))
    other = version(1).replace('"staged', '"other').replace("app:", "more:")
    stage.plugged.write("other.py", other)
    changes = stage.plugged.call("bus.reload")["pluginChanges"]
    assert changes == {"staged": "restarted", "other": "started"}
    (stage.plugged.plugins / "other.py").unlink()
    assert stage.plugged.call("bus.reload")["pluginChanges"] == {"other": "stopped"}
    assert stage.plugged.call("bus.reload")["pluginChanges"] == {}


def test_a_bus_that_ends_in_the_middle_of_it_ends(loop: Loop, opened: ExitStack) -> None:
    stage = open_stage(loop, opened, **{"plugins.start_seconds": 0.5})
    stage.plugged.daemon.is_blamed = True
    stage.change(version(2))
    stage.until_noted("start 2")
    stage.plugged.daemon.signal(signal.SIGTERM)
    assert stage.plugged.daemon.wait() == 0
