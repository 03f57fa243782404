"""Daemons with plugins in a folder: good ones, bad ones, and ones that change."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, Settings, open_daemon
from tests.plugin.sources import SHARED
from tests.wire_peers import Json, Peer, connect

Ask = Callable[..., Json]


class Plugged:
    """A daemon, and the folder of its plugins."""

    def __init__(self, daemon: Daemon, plugins: Path) -> None:
        self.daemon = daemon
        self.plugins = plugins

    def call(self, method: str, params: dict[str, Any] | None = None) -> Json:
        with closing(connect(self.daemon, "unix")) as owner:
            owner.initialize("owner")
            answer: Json = owner.call(method, params or {})
            return answer

    def listed(self) -> dict[str, Json]:
        """Return all plugins, by the name of their file."""
        found = self.call("bus.listPlugins")["plugins"]
        return {Path(each["origin"]).stem: each for each in found}

    def write(self, name: str, text: str) -> None:
        write_plugin(self.plugins, name, text)

    def reload(self) -> None:
        """Have the plugins looked at again; returns when that is done."""
        before = self._reloads()
        self.daemon.signal(signal.SIGHUP)
        end = time.monotonic() + PATIENCE_SECONDS
        while self._reloads() == before:
            assert time.monotonic() < end, self.daemon.log()
            self.call("ping")

    def _reloads(self) -> int:
        return self.daemon.log().count("settings.reloaded")


@contextmanager
def open_plugged(
    loop: Loop, plugins: dict[str, str], settings: Settings | None = None, log_level: str = "info"
) -> Iterator[Plugged]:
    """Run a daemon with these plugins and no others."""
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    here = folder / "plugins"
    here.mkdir(mode=0o755)
    for name, text in plugins.items():
        write_plugin(here, name, text)
    said = {"plugins.folders": [str(here)], "plugins.disabled": ["bub", "unwanted"]}
    with open_daemon(loop, {**said, **(settings or {})}, None, folder, log_level) as daemon:
        yield Plugged(daemon, here)


def write_plugin(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


@pytest.fixture(scope="session")
def shared(loop: Loop) -> Iterator[Plugged]:
    """One daemon for all tests that change nothing; half of its plugins are bad."""
    limits = {"plugins.handler_seconds": 0.5, "plugins.start_seconds": 2.0}
    own = {"plugins.settings.greet.words": 3}
    with open_plugged(loop, SHARED, {**limits, **own}) as plugged:
        plugged.daemon.is_blamed = True  # its plugins are at fault, as they should
        yield plugged


@pytest.fixture
def ask(shared: Plugged, suffix: str, opened: ExitStack) -> Ask:
    """Send a message to a plugin and give its one ack."""
    peer = joined(shared, f"tg:{suffix}", opened)

    def send(to: str, payload: Json) -> Json:
        answer = peer.answer_to(peer.send_message(to, payload))
        [ack] = answer["result"]["acks"]
        found: Json = ack
        return found

    return send


def joined(plugged: Plugged, name: str, opened: ExitStack) -> Peer:
    peer = connect(plugged.daemon, "unix")
    opened.callback(peer.close)
    peer.initialize(name)
    return peer
