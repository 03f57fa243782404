"""The life of a plugin: started before the bus is ready, changed while it runs, stopped last."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemons import Loop
from tests.plugin.conftest import Plugged, joined, open_plugged
from tests.plugin.sources import EMPTY, GREET, TOY_BRIDGE
from tests.wire_peers import Peer

# Writes each moment of its life into a file of the state folder.
DIARY = '''"""Diary: notes what happens."""

from __future__ import annotations

import anyio
from msgspec import Raw, Struct

from busd import Context, Plugin

plugin = Plugin("diary")


class Own(Struct):
    word: str = "none"


def note(ctx: Context, line: str) -> None:
    with (ctx.state / "diary").open("a") as file:
        file.write(line + "\\n")


@plugin.on_start
async def start(ctx: Context) -> None:
    await anyio.sleep(0)
    note(ctx, "start")
    ctx.tasks.start_soon(linger, ctx)


@plugin.on_stop
async def stop(ctx: Context) -> None:
    await anyio.sleep(0)
    note(ctx, "stop")


@plugin.on_reload
async def reload(ctx: Context) -> None:
    note(ctx, f"reload {ctx.own_settings(Own).word}")


async def linger(ctx: Context) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        note(ctx, "cancelled")


@plugin.on_peer_joined
def joined(name: str, ctx: Context) -> None:
    note(ctx, f"joined {name}")
    if name.startswith("new:"):
        ctx.post(name, {"type": "welcome"})


@plugin.on_peer_left
def left(name: str, ctx: Context) -> None:
    note(ctx, f"left {name}")
'''


def diary(plugged: Plugged) -> list[str]:
    lines = (plugged.daemon.folder / "state/diary").read_text().splitlines()
    return [line for line in lines if "owner" not in line]


def greeting(peer: Peer, text: str = "hi") -> str:
    """Return what the greeter answers, or what became of the message."""
    request = peer.send_message("app:greet", {"type": "hello", "content": {"text": text}})
    result = peer.answer_to(request)["result"]
    if not result["acks"]:
        return str(result["undelivered"])
    ack = result["acks"][0]
    return str(ack["payload"]["content"]["text"] if ack["success"] else ack["message"])


def test_a_plugin_hears_of_its_own_life_and_of_those_who_come_and_go(loop: Loop) -> None:
    with open_plugged(loop, {"diary.py": DIARY}) as plugged, ExitStack() as opened:
        assert diary(plugged) == ["start"]  # the bus is ready: it has happened
        first = joined(plugged, "tg:1", opened)
        second = joined(plugged, "tg:1", opened)
        first.close()
        peer = joined(plugged, "tg:2", opened)
        peer.call("ping")
        assert diary(plugged) == ["start", "joined tg:1", "joined tg:1", "joined tg:2"]
        second.close()
        peer.call("ping")
        folder = plugged.daemon.folder
        plugged.daemon.stop()
        said = (folder / "state/diary").read_text().splitlines()
        assert "left tg:1" in said
        assert said[-2:] == ["stop", "cancelled"]
        assert said.index("left tg:2") < said.index("stop")


def test_a_word_for_a_new_peer_comes_after_the_answer_to_its_initialize(loop: Loop) -> None:
    with open_plugged(loop, {"diary.py": DIARY}) as plugged, ExitStack() as opened:
        peer = joined(plugged, "new:1", opened)
        assert peer.next_message()["params"]["payload"] == {"type": "welcome"}


def test_a_reload_starts_new_plugins_and_stops_vanished_ones(loop: Loop) -> None:
    with open_plugged(loop, {"diary.py": DIARY}) as plugged, ExitStack() as opened:
        peer = joined(plugged, "tg:1", opened)
        assert greeting(peer) == "no route"
        plugged.write("greet.py", GREET)
        plugged.reload()
        assert greeting(peer) == "hi to you, tg:1"
        (plugged.plugins / "greet.py").unlink()
        (plugged.plugins / "diary.py").unlink()
        plugged.reload()
        assert greeting(peer) == "no route"
        assert diary(plugged)[-2:] == ["stop", "cancelled"]
        assert not set(plugged.listed()) & {"greet", "diary"}


@pytest.mark.parametrize("name", ["greet.py", "greet/__init__.py"])
def test_a_changed_plugin_is_exchanged_and_no_connection_is_dropped(loop: Loop, name: str) -> None:
    with open_plugged(loop, {name: GREET, "diary.py": DIARY}) as plugged, ExitStack() as opened:
        peer = joined(plugged, "tg:1", opened)
        assert greeting(peer) == "hi to you, tg:1"
        for words in ("for you", "by you,", "of you,"):  # as long as before, within a second
            plugged.write(name, GREET.replace("to you,", words))
            plugged.reload()
            assert greeting(peer) == f"hi {words} tg:1"
        assert [line for line in diary(plugged) if "tg:1" not in line] == [
            "start",
            *["reload none"] * 3,
        ]


def test_a_changed_module_of_a_package_exchanges_the_whole_plugin(loop: Loop) -> None:
    imports = "from busd_plugins.greet.words import WORD\nfrom busd import"
    whole = GREET.replace("from busd import", imports).replace("to you,", "{WORD} you,")
    parts = {"greet/__init__.py": whole, "greet/words.py": 'WORD = "to"\n'}
    with open_plugged(loop, parts) as plugged, ExitStack() as opened:
        peer = joined(plugged, "tg:1", opened)
        assert greeting(peer) == "hi to you, tg:1"
        plugged.write("greet/words.py", 'WORD = "at"\n')
        plugged.reload()
        assert greeting(peer) == "hi at you, tg:1"


def test_a_change_that_cannot_be_imported_leaves_the_old_plugin_at_work(loop: Loop) -> None:
    with open_plugged(loop, {"greet.py": GREET}) as plugged, ExitStack() as opened:
        plugged.daemon.is_blamed = True
        peer = joined(plugged, "tg:1", opened)
        plugged.write("greet.py", "def f(:\n")
        plugged.reload()
        assert greeting(peer) == "hi to you, tg:1"
        found = plugged.call("bus.listPlugins")["plugins"]
        [greet] = [each for each in found if each["name"] == "greet"]
        assert (greet["state"], greet["faults"]) == ("outdated", 1)
        assert greet["lastFault"].startswith("import failed: SyntaxError")
        plugged.write("greet.py", GREET.replace("to you,", "again,"))
        plugged.reload()
        assert greeting(peer) == "hi again, tg:1"
        assert plugged.listed()["greet"]["state"] == "running"
        assert plugged.listed()["greet"]["lastFault"] == ""


def test_a_plugin_that_could_not_start_is_tried_again_by_a_reload(loop: Loop) -> None:
    needy = GREET + (
        "\n\n@plugin.on_start\nasync def start(ctx: Context) -> None:\n"
        "    (ctx.state / 'needed').read_text()\n"
    )
    with open_plugged(loop, {"greet.py": needy}) as plugged, ExitStack() as opened:
        plugged.daemon.is_blamed = True
        peer = joined(plugged, "tg:1", opened)
        assert greeting(peer) == "no route"
        plugged.reload()
        assert greeting(peer) == "no route"
        (plugged.daemon.folder / "state/needed").touch()
        plugged.reload()
        assert greeting(peer) == "hi to you, tg:1"
        assert plugged.listed()["greet"]["state"] == "running"


def test_the_settings_of_a_plugin_are_read_again(loop: Loop) -> None:
    with open_plugged(loop, {"diary.py": DIARY}) as plugged:
        config = plugged.daemon.folder / "busd.toml"
        config.write_text(config.read_text() + 'plugins.settings.diary.word = "new"\n')
        plugged.reload()
        assert diary(plugged)[-1] == "reload new"
        plugged.daemon.is_blamed = True
        config.write_text(config.read_text().replace('"new"', "5"))
        plugged.reload()
        fault = plugged.listed()["diary"]["lastFault"]
        rule = "plugins.settings.diary.word must be a string, not 5"
        assert fault == f"on_reload: ConfigError: {rule}"


def test_a_plugin_that_is_disabled_is_stopped_by_a_reload(loop: Loop) -> None:
    with open_plugged(loop, {"diary.py": DIARY}) as plugged:
        config = plugged.daemon.folder / "busd.toml"
        config.write_text(config.read_text().replace('"unwanted"', '"diary"'))
        plugged.reload()
        assert plugged.listed()["diary"]["state"] == "disabled"
        assert diary(plugged)[-1] == "cancelled"


def test_a_plugin_that_will_not_stop_does_not_keep_the_bus(loop: Loop) -> None:
    stubborn = EMPTY.format(name="stubborn", about="Stays") + (
        "import anyio\n@plugin.on_stop\nasync def f(ctx): await anyio.sleep_forever()\n"
    )
    settings = {"plugins.stop_seconds": 0.2}
    with open_plugged(loop, {"stubborn.py": stubborn}, settings) as plugged:
        plugged.daemon.is_blamed = True
        plugged.daemon.signal(signal.SIGTERM)
        assert plugged.daemon.wait() == 0
        assert "on_stop took longer than 0.2 s" in plugged.daemon.log()


def test_what_a_plugin_owes_is_answered_before_the_bus_ends(loop: Loop) -> None:
    slow = GREET.replace("    if not", "    import anyio\n    await anyio.sleep(0.3)\n    if not")
    with open_plugged(loop, {"greet.py": slow}) as plugged, ExitStack() as opened:
        peer = joined(plugged, "tg:1", opened)
        request = peer.send_message("app:greet", {"type": "hello", "content": {"text": "hi"}})
        peer.call("ping")
        plugged.daemon.signal(signal.SIGTERM)
        [ack] = peer.answer_to(request)["result"]["acks"]
        assert ack["payload"]["content"]["text"] == "hi to you, tg:1"


def test_one_plugin_stopped_in_the_middle_of_its_work_says_so(loop: Loop) -> None:
    slow = GREET.replace("    if not", "    import anyio\n    await anyio.sleep(30)\n    if not")
    with open_plugged(loop, {"greet.py": slow}) as plugged, ExitStack() as opened:
        peer = joined(plugged, "tg:1", opened)
        request = peer.send_message("app:greet", {"type": "hello", "content": {"text": "hi"}})
        peer.call("ping")
        Path(plugged.plugins / "greet.py").unlink()
        plugged.reload()
        [ack] = peer.answer_to(request)["result"]["acks"]
        assert (ack["success"], ack["message"]) == (False, "plugin greet was stopped")


def test_a_plugin_with_only_a_bridge_is_listed_and_runs_nothing_in_the_bus(loop: Loop) -> None:
    with open_plugged(loop, {"toy.py": TOY_BRIDGE}) as plugged:
        toy = plugged.listed()["toy"]
        assert (toy["state"], toy["about"]) == ("bridge", "Toy: connects a toy system.")
        names = [each["clientId"] for each in plugged.call("getStatus")["connections"]]
        assert "plugin:toy" not in names
