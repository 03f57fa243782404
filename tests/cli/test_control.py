"""`busd reload`, `busd stop` and `busd address`: what they say, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from busd import SyncClient
from busd.errors import Busy
from busd.ops.reloads import Reloaded, Reloads
from busd.plugin.context import Sent
from tests.cli.terminal import Said, Terminal
from tests.daemons import PATIENCE_SECONDS, Daemon, open_daemon
from tests.plugin.sources import GREET
from tests.wire_peers import connect


class Operated:
    """A bus of this test's own, the file of its settings and a terminal beside it."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self.daemon = daemon
        self.config = daemon.folder / "busd.toml"
        self.terminal = Terminal(folder, f"unix:{daemon.path}")

    def write(self, more: str) -> None:
        self.config.write_text(f'policy = "open"\n{more}\n')

    def reload(self, *args: str) -> Said:
        return self.terminal.busd("reload", *args)

    def log_of(self, event: str) -> list[dict[str, object]]:
        lines = map(json.loads, self.daemon.log().splitlines())
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    with open_daemon("uvloop", log_level="info") as daemon:
        yield Operated(daemon, tmp_path)


# reload


def test_a_reload_prints_what_changed_and_what_needs_a_restart(operated: Operated) -> None:
    assert operated.reload() == (0, "changed: no setting\n", "")
    operated.write("drain_seconds = 3.0\njournal.enabled = false")
    assert operated.reload() == (
        0,
        "changed: drain_seconds\nneeds a restart: journal.enabled\n",
        "",
    )
    done = json.loads(operated.reload("--json").out)
    assert done == {
        "refused": "",
        "changed": [],
        "needRestart": ["journal.enabled"],
        "warnings": [],
        "plugins": [],
        "pluginChanges": {},
    }


def test_a_refused_reload_says_why_and_returns_78(operated: Operated) -> None:
    operated.daemon.is_blamed = True  # the operator's mistake is an error in the log
    operated.write('drain_seconds = 3.0\nlistn = ["x"]')
    reason = f"{operated.config}: unknown setting 'listn'; did you mean 'listen'?"
    said = operated.reload()
    assert (said.code, said.out) == (78, "")
    assert said.err == f"busd: reload refused, the old settings stay: {reason}\n"
    said = operated.reload("--json")
    assert (said.code, said.err) == (78, "")
    assert json.loads(said.out)["refused"] == reason
    about = json.loads(operated.terminal.busd("call", "bus.about").out)
    assert about["refused"] == reason
    operated.write("drain_seconds = 3.0")
    assert operated.reload() == (0, "changed: drain_seconds\n", "")
    assert json.loads(operated.terminal.busd("call", "bus.about").out)["refused"] == ""


def test_a_plugin_that_is_refused_is_named_and_returns_1(
    operated: Operated, tmp_path: Path
) -> None:
    operated.daemon.is_blamed = True  # its log has the traceback
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "greet.py").write_text("def f(:\n")
    operated.write(f'plugins.folders = ["{folder}"]')
    said = operated.reload()
    assert (said.code, said.out) == (1, "changed: plugins.folders\n")
    assert said.err.startswith("busd: plugin greet was refused: import failed: SyntaxError: ")
    (folder / "greet.py").write_text(GREET)
    assert operated.reload() == (0, "changed: no setting\nplugin greet: started\n", "")


def test_doubtful_settings_are_warnings_of_a_reload(operated: Operated) -> None:
    operated.write('workers.default.command = ["no-such-llm"]')
    said = operated.reload()
    assert (said.code, said.out) == (0, "changed: workers\n")
    assert said.err == (
        "warning: workers.default.command: program 'no-such-llm' not found in PATH; "
        "install it, or change workers.default.command\n"
    )


def test_many_who_ask_at_once_share_few_reloads(operated: Operated) -> None:
    with closing(connect(operated.daemon, "unix")) as owner:
        owner.initialize("owner")
        calls = [owner.request("bus.reload", {}) for _ in range(50)]
        for _ in range(20):
            operated.daemon.signal(signal.SIGHUP)
        assert all(owner.answer_to(call)["result"]["refused"] == "" for call in calls)
    # One with the first to ask, one for all who asked meanwhile, and those of the signals.
    assert len(operated.log_of("settings.reloaded")) <= 6


def test_too_many_who_wait_for_a_reload_are_told_to_try_again() -> None:
    async def reload() -> Reloaded:
        return Reloaded()

    async def ask() -> None:
        reloads = Reloads(reload)
        for number in range(64):
            reloads.put(Sent(str(number)), number)
        with pytest.raises(Busy):
            reloads.put(Sent("one too many"), 64)

    anyio.run(ask)


@pytest.mark.parametrize("method", ["bus.reload", "bus.stop", "bus.about"])
def test_only_an_admin_may_control_the_bus(tmp_path: Path, method: str) -> None:
    with open_daemon("uvloop", {"policy": "strict"}) as daemon:
        with closing(connect(daemon, "unix")) as owner:
            owner.initialize("owner")
            token = owner.call("bus.newToken", {"name": "bridge"})["token"]
        with closing(connect(daemon, "tcp")) as bridge:
            bridge.initialize("tg:bridge", auth={"token": token})
            answer = bridge.answer_to(bridge.request(method, {}))
            assert answer["error"]["data"]["rule"] == "grant.admin"
            bridge.call("ping")


def test_without_a_bus_there_is_nothing_to_reload_or_stop(lonely: Terminal) -> None:
    for verb in ("reload", "stop"):
        said = lonely.busd(verb)
        assert (said.code, said.out) == (69, "")
        assert said.err.endswith('; start one with "busd serve"\n')


# stop


def test_stop_returns_when_the_process_has_ended(tmp_path: Path) -> None:
    with open_daemon("uvloop") as daemon:
        said = Terminal(tmp_path, f"unix:{daemon.path}").busd("stop")
        assert (said.code, said.out) == (0, "")
        assert said.err.startswith(f"the bus has stopped (process {daemon.process.pid}, ")
        assert daemon.process.poll() == 0
        assert not Path(daemon.path).exists()


def test_stop_drains_first_and_says_in_json_how_long_it_took(tmp_path: Path) -> None:
    with open_daemon("uvloop") as daemon:
        terminal = Terminal(tmp_path, f"unix:{daemon.path}")
        with (
            SyncClient("agent:slow", address=f"unix:{daemon.path}") as slow,
            SyncClient("tg:1", address=f"unix:{daemon.path}") as chat,
        ):
            asked, release = threading.Event(), threading.Event()

            @slow.on()
            def answer(message: object) -> dict[str, str]:
                asked.set()
                release.wait(PATIENCE_SECONDS)
                return {"type": "late"}

            receipts: list[bool] = []
            sender = threading.Thread(
                target=lambda: receipts.append(chat.send("agent:slow", {}).acks[0].success)
            )
            sender.start()
            assert asked.wait(PATIENCE_SECONDS)
            with terminal.start("stop", "--json") as stopping:
                assert stopping.stderr.readline().startswith("waiting until process ")
                assert daemon.process.poll() is None
                release.set()
                sender.join(PATIENCE_SECONDS)
                assert receipts == [True]
                said = stopping.end()
        done = json.loads(said.out)
        assert (said.code, done["stopped"], done["pid"]) == (0, True, daemon.process.pid)
        assert done["seconds"] > 0


def test_a_bus_that_does_not_end_in_time_is_told(tmp_path: Path) -> None:
    with open_daemon("uvloop") as daemon:
        terminal = Terminal(tmp_path, f"unix:{daemon.path}")
        with SyncClient("agent:mute", address=f"unix:{daemon.path}") as mute:
            asked, release = threading.Event(), threading.Event()

            @mute.on()
            def answer(message: object) -> None:
                asked.set()
                release.wait(PATIENCE_SECONDS)

            with SyncClient("tg:1", address=f"unix:{daemon.path}") as chat:
                chat.post("agent:mute", {})
                assert asked.wait(PATIENCE_SECONDS)
                said = terminal.busd("stop", "--timeout", "0.2")
            release.set()
        pid = daemon.process.pid
        assert (said.code, said.out) == (75, "")
        assert said.err == (
            f"busd: the bus (process {pid}) has not ended within 0.2 s; "
            f"`kill {pid}` makes it stop without waiting for answers\n"
        )


# address


def test_the_address_is_where_clients_look(lonely: Terminal, tmp_path: Path) -> None:
    where = tmp_path / "busd/bus.sock"
    assert lonely.busd("address") == (0, f"unix:{where}\n", "")
    assert lonely.busd("address", "--path") == (0, f"{where}\n", "")
    assert json.loads(lonely.busd("address", "--json").out) == {
        "address": f"unix:{where}",
        "path": str(where),
    }
    del lonely.environment["XDG_RUNTIME_DIR"]
    if os.geteuid():
        expected = str(tmp_path / "state/busd/run/bus.sock")
        assert lonely.busd("address", "--path").out == f"{expected}\n"
    said = lonely.busd("address", "--path", "-a", "ws://127.0.0.1:1/x")
    assert (said.code, said.out) == (1, "")
    assert said.err == "busd: the bus is at ws://127.0.0.1:1/x, which is no Unix socket\n"
