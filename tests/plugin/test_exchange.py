"""A changed plugin takes the place of the old one: nobody who writes meanwhile is let down."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.daemons import PATIENCE_SECONDS, Loop
from tests.plugin.conftest import Plugged, joined, open_plugged
from tests.wire_peers import Peer

_REPLACEMENTS = 15
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


def test_no_message_fails_however_often_a_plugin_is_exchanged(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    stage.cue()
    peer = joined(stage.plugged, "tg:1", opened)
    heard = [0]
    for number in range(2, 2 + _REPLACEMENTS):
        stage.change(version(number))
        while stage.reloads() < number - 1:
            sent = [peer.send_message("app:staged") for _ in range(_AT_ONCE)]
            heard += [outcome(peer, each) for each in sent]
    assert heard == sorted(heard)  # versions, never a word
    assert outcome(peer, peer.send_message("app:staged")) == 1 + _REPLACEMENTS


def test_messages_wait_in_the_place_of_a_plugin_until_the_next_one_has_started(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    peer = joined(stage.plugged, "tg:1", opened)
    stage.change(version(2))
    stage.until_noted("start 2")
    assert stage.diary() == ["start 1", "stop 1", "start 2"]  # never both at work
    sent = [peer.send_message(to) for to in ("app:staged", "app:always", "plugin:staged")]
    refused = peer.answer_to(peer.request("staged.version", {"version": 0}))["error"]
    assert (refused["code"], refused["data"]["retrySeconds"]) == (-32004, 1)
    stage.cue()
    stage.until_reloaded()
    by_name = "plugin staged takes no messages to plugin:staged"
    assert [outcome(peer, each) for each in sent] == [2, 2, by_name]
    assert peer.call("staged.version", {"version": 0}) == {"version": 2}
    [status] = [
        it for it in peer.call("getStatus")["connections"] if it["connectionId"].startswith("local")
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
    waits = peer.send_message("app:staged")
    stage.cue("answer")
    assert outcome(peer, slow) == 1
    stage.until_reloaded()
    assert outcome(peer, waits) == 2
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


def test_a_change_that_cannot_start_leaves_the_old_plugin_at_work(
    loop: Loop, opened: ExitStack
) -> None:
    stage = open_stage(loop, opened)
    stage.plugged.daemon.is_blamed = True
    peer = joined(stage.plugged, "tg:1", opened)
    stage.change(version(2, f"{ON_CUE}; {FAILS}"))
    stage.until_noted("start 2")
    waits = peer.send_message("app:staged")
    stage.cue()
    assert outcome(peer, waits) == 1
    stage.until_reloaded()
    assert stage.diary() == ["start 1", "stop 1", "start 2", "start 1"]
    assert peer.call("staged.version", {"version": 0}) == {"version": 1}
    assert outcome(peer, peer.send_message("app:only-2")) == 1  # by its pattern
    found = stage.plugged.call("bus.listPlugins")["plugins"]
    [staged] = [each for each in found if each["name"] == "staged"]
    assert (staged["state"], staged["version"]) == ("outdated", "1")
    assert staged["lastFault"] == "on_start: RuntimeError: no luck"
    stage.plugged.write("staged.py", version(3))
    stage.plugged.reload()
    assert outcome(peer, peer.send_message("app:staged")) == 3
    assert stage.plugged.listed()["staged"]["state"] == "running"


def test_if_the_old_one_cannot_start_again_either_whoever_waits_is_told(
    loop: Loop, opened: ExitStack
) -> None:
    once = version(1, f'if (ctx.state / "go").exists(): {FAILS}')
    stage = Stage(opened.enter_context(open_plugged(loop, {"staged.py": once})))
    stage.plugged.daemon.is_blamed = True
    peer = joined(stage.plugged, "tg:1", opened)
    stage.change(version(2, f"{ON_CUE}; {FAILS}"))
    stage.until_noted("start 2")
    waits = peer.send_message("app:staged")
    stage.cue()
    assert outcome(peer, waits) == "peer left before it answered"
    stage.until_reloaded()
    assert outcome(peer, peer.send_message("app:staged")) == "no route"
    stage.plugged.write("staged.py", version(3))
    stage.plugged.reload()
    assert outcome(peer, peer.send_message("app:staged")) == 3


def test_too_many_messages_do_not_wait(loop: Loop, opened: ExitStack) -> None:
    stage = open_stage(loop, opened, **{"plugins.max_running": 2})
    peer = joined(stage.plugged, "tg:1", opened)
    stage.change(version(2))
    stage.until_noted("start 2")
    sent = [peer.send_message("app:staged") for _ in range(3)]
    [busy] = peer.answer_to(sent.pop())["result"]["acks"]
    assert (busy["message"], busy["retrySeconds"]) == ("peer is busy", 1)
    stage.cue()
    assert [outcome(peer, each) for each in sent] == [2, 2]


def test_a_bus_that_ends_in_the_middle_of_it_ends(loop: Loop, opened: ExitStack) -> None:
    stage = open_stage(loop, opened, **{"plugins.start_seconds": 0.5})
    stage.plugged.daemon.is_blamed = True
    stage.change(version(2))
    stage.until_noted("start 2")
    stage.plugged.daemon.signal(signal.SIGTERM)
    assert stage.plugged.daemon.wait() == 0
