"""Plugins that do what no plugin should: each hurts itself alone."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack

import pytest

from tests.daemons import PATIENCE_SECONDS, Loop
from tests.plugin.conftest import Plugged, joined, open_plugged
from tests.plugin.sources import EMPTY, GREET
from tests.plugin.test_life import greeting
from tests.wire_peers import Json

HOSTILE = '''"""Hostile: goes wrong in ways that no `except Exception` catches."""

from __future__ import annotations

import sniffio
from msgspec import Raw

from busd import Context, Plugin, Refuse

plugin = Plugin("hostile")


@plugin.handles(to="bad:group")
async def exits_in_a_group(payload: Raw) -> None:
    raise BaseExceptionGroup("several", [SystemExit(3), ValueError("x")])


@plugin.handles(to="bad:interrupt")
async def interrupts(payload: Raw) -> None:
    raise KeyboardInterrupt


@plugin.handles(to="bad:cancelled")
async def awaits_what_was_cancelled(payload: Raw) -> None:
    if sniffio.current_async_library() == "trio":
        raise RuntimeError("trio has no such thing")
    import asyncio

    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@plugin.handles(to="bad:words")
async def refuses_in_no_unicode(payload: Raw) -> None:
    raise Refuse("\\ud800")


@plugin.handles(to="bad:loop")
def sends_to_itself(payload: Raw, ctx: Context) -> None:
    ctx.post("bad:loop", {})


@plugin.handles(to="bad:task")
async def leaves_a_task(payload: Raw, ctx: Context) -> None:
    ctx.tasks.start_soon(exits_in_a_group, payload)


@plugin.handles(to="bad:none")
def fine(payload: Raw) -> None:
    pass
'''


def ack_of(plugged: Plugged, opened: ExitStack, to: str) -> Json:
    peer = joined(plugged, "tg:1", opened)
    peer.sock.settimeout(5)
    [ack] = peer.answer_to(peer.send_message(to, {"type": "x"}))["result"]["acks"]
    return ack


@pytest.mark.parametrize("address", ["bad:group", "bad:interrupt", "bad:cancelled", "bad:words"])
def test_what_is_no_exception_is_a_failed_ack_too_and_the_bus_goes_on(
    loop: Loop, address: str
) -> None:
    with open_plugged(loop, {"hostile.py": HOSTILE}) as plugged, ExitStack() as opened:
        plugged.daemon.is_blamed = True
        ack = ack_of(plugged, opened, address)
        assert (ack["success"], ack["message"]) == (False, "plugin hostile failed")
        assert ack_of(plugged, opened, "bad:none")["success"]
        assert plugged.listed()["hostile"]["faults"] == 1


def test_a_task_that_ends_in_a_group_of_exits_ends_nobody_else(loop: Loop) -> None:
    with open_plugged(loop, {"hostile.py": HOSTILE}) as plugged, ExitStack() as opened:
        plugged.daemon.is_blamed = True
        assert ack_of(plugged, opened, "bad:task")["success"]
        end = time.monotonic() + PATIENCE_SECONDS
        while not plugged.listed()["hostile"]["faults"]:
            assert time.monotonic() < end
        assert ack_of(plugged, opened, "bad:none")["success"]


def test_a_plain_handler_that_sends_to_itself_without_end_keeps_nobody_waiting(loop: Loop) -> None:
    with open_plugged(loop, {"hostile.py": HOSTILE}) as plugged, ExitStack() as opened:
        plugged.daemon.is_blamed = True
        ack_of(plugged, opened, "bad:loop")
        assert ack_of(plugged, opened, "bad:none")["success"]


def test_one_that_could_not_start_hears_nothing_of_peers_and_gets_no_messages(loop: Loop) -> None:
    broken = EMPTY.format(name="broken", about="Broken") + (
        "@plugin.on_start\nasync def f(ctx): raise ValueError('no')\n"
        "@plugin.on_peer_joined\ndef g(name, ctx): ctx.subscribe('app:mine')\n"
    )
    with open_plugged(loop, {"broken.py": broken}) as plugged, ExitStack() as opened:
        plugged.daemon.is_blamed = True
        peer = joined(plugged, "tg:1", opened)
        answer = peer.answer_to(peer.send_message("app:mine", {}))
        assert answer["result"]["undelivered"] == "no route"
        assert plugged.listed()["broken"]["faults"] == 1


def test_a_plugin_that_cannot_be_cancelled_does_not_keep_the_bus(loop: Loop) -> None:
    stuck = EMPTY.format(name="stuck", about="Stuck") + (
        "import anyio\n"
        "async def stay():\n    with anyio.CancelScope(shield=True): await anyio.sleep_forever()\n"
        "@plugin.on_start\nasync def f(ctx): ctx.tasks.start_soon(stay)\n"
    )
    settings = {"plugins.stop_seconds": 0.2}
    with open_plugged(loop, {"stuck.py": stuck}, settings) as plugged:
        plugged.daemon.is_blamed = True
        plugged.daemon.signal(signal.SIGTERM)
        try:
            assert plugged.daemon.process.wait(10) == 0
        finally:
            plugged.daemon.process.kill()
        assert "did not stop within 1.2 s" in plugged.daemon.log()


def test_a_folder_of_nobody_is_no_mistake_and_the_bus_goes_on(loop: Loop) -> None:
    with open_plugged(loop, {"greet.py": GREET}) as plugged, ExitStack() as opened:
        config = plugged.daemon.folder / "busd.toml"
        config.write_text(
            config.read_text().replace(
                "plugins.folders = [", 'plugins.folders = ["~nobody-here/x", '
            )
        )
        plugged.reload()
        assert greeting(joined(plugged, "tg:1", opened)) == "hi to you, tg:1"


def test_what_is_told_of_a_plugin_with_very_many_addresses_is_short(loop: Loop) -> None:
    crowd = EMPTY.format(name="crowd", about="Crowd") + (
        "@plugin.on_start\nasync def f(ctx):\n"
        "    for n in range(50_000): ctx.subscribe(f'agent:worker-{n:012d}')\n"
    )
    with open_plugged(loop, {"crowd.py": crowd}) as plugged:
        [peer] = [
            each
            for each in plugged.call("getStatus")["connections"]
            if each["clientId"] == "plugin:crowd"
        ]
        assert len(peer["subscriptions"]) == 1_000
        assert peer["moreSubscriptions"] == 49_001
        assert len(plugged.listed()["crowd"]["addresses"]) == 1_000


def test_what_a_slow_plugin_holds_is_bounded_in_bytes(loop: Loop) -> None:
    slow = EMPTY.format(name="slow", about="Slow") + (
        "import anyio\nfrom msgspec import Raw\n"
        "gate: list[anyio.Event] = []\n"
        "@plugin.on_start\nasync def start(ctx) -> None: gate.append(anyio.Event())\n"
        "@plugin.handles(to='app:slow')\n"
        "async def wait(payload: Raw) -> None: await gate[0].wait()\n"
        "@plugin.handles(to='app:gate')\n"
        "async def go(payload: Raw) -> None: gate[0].set()\n"
    )
    with open_plugged(loop, {"slow.py": slow}) as plugged, ExitStack() as opened:
        peer = joined(plugged, "tg:1", opened)

        def outcome(request: int) -> tuple[bool, str]:
            [ack] = peer.answer_to(request)["result"]["acks"]
            return ack["success"], ack["message"]

        requests = [peer.send_message("app:slow", {"text": "x" * 1_000_000}) for _ in range(80)]
        assert {outcome(each) for each in requests[70:]} == {(False, "peer is busy")}
        assert outcome(peer.send_message("app:gate", {}))[0]
        assert {outcome(each)[0] for each in requests[:60]} == {True}
        assert outcome(peer.send_message("app:slow", {"text": "x" * 1_000_000}))[0]
