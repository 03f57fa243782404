"""What the tests share: a daemon for each loop, connections to it, addresses of their own."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from busd.plugin.loader import bundled_folder, use_folders
from tests.daemons import Daemon, Loop, Settings, open_daemon
from tests.wire_peers import Peer, Transport, connect

Join = Callable[[str], Peer]
DaemonWith = Callable[[Settings], Daemon]
_numbers = count(1)
use_folders([bundled_folder()])  # `from busd_plugins.bub…` works in tests as it does in plugins
LOOPS = ("uvloop", "trio")
# Applications only use the bus, and most of their tests start processes. So each of these tests
# runs on one loop, half of them on either; with `--every-loop` they run on both.
APPLICATIONS = ("tests/plugin/", "tests/plugins/", "tests/reference/")


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "run the tests of the plugins on both loops, too"
    parser.addoption("--every-loop", action="store_true", help=words)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--every-loop"):
        items[:] = [item for item in items if not is_of_the_other_loop(item)]


def is_of_the_other_loop(item: pytest.Item) -> bool:
    """Return whether the same test of an application runs on the other loop."""
    if not isinstance(item, pytest.Function) or not item.nodeid.startswith(APPLICATIONS):
        return False
    if not hasattr(item, "callspec") or "loop" not in item.callspec.params:
        return False
    loop = str(item.callspec.params["loop"])
    name = item.nodeid.replace(loop, "", 1)  # the same for both
    return LOOPS[zlib.crc32(name.encode()) % 2] != loop


@pytest.fixture(scope="session", params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Loop:
    """The loop that the daemon runs on."""
    chosen: Loop = request.param
    return chosen


@pytest.fixture(params=["unix", "tcp", "ws"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """The transport that peers connect by."""
    chosen: Transport = request.param
    return chosen


@pytest.fixture(scope="session")
def daemons(loop: Loop) -> Iterator[Daemons]:
    """The daemons that tests share, one for each choice of settings."""
    with ExitStack() as stack:
        yield Daemons(loop, stack)


class Daemons:
    """Daemons that are started when a test first wants them and stopped after the last one."""

    def __init__(self, loop: Loop, stack: ExitStack) -> None:
        self._loop = loop
        self._stack = stack
        self._running: dict[str, Daemon] = {}

    def with_settings(self, settings: Settings) -> Daemon:
        key = json.dumps(settings, sort_keys=True)
        if key not in self._running:
            self._running[key] = self._stack.enter_context(open_daemon(self._loop, settings))
        return self._running[key]

    def check(self) -> None:
        """Make sure that none has died or is at fault; one that is serves no other test."""
        for key, daemon in list(self._running.items()):
            if daemon.process.poll() is not None or daemon.faults():
                del self._running[key]
                daemon.is_blamed = True
                pytest.fail(f"busd is at fault:\n{daemon.log()}")


@pytest.fixture
def daemon_with(daemons: Daemons) -> Iterator[DaemonWith]:
    """Yield the daemon with these settings; it is shared by all tests that want the same."""
    yield daemons.with_settings
    daemons.check()


@pytest.fixture
def daemon(daemon_with: DaemonWith) -> Daemon:
    """The daemon with the default settings."""
    return daemon_with({})


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """What is put here is closed after the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def open_peer(daemon: Daemon, transport: Transport, opened: ExitStack) -> Callable[[], Peer]:
    """Open connections that have not initialized yet."""

    def open_one() -> Peer:
        peer = connect(daemon, transport)
        opened.callback(peer.close)
        return peer

    return open_one


@pytest.fixture
def join(open_peer: Callable[[], Peer]) -> Join:
    """Open connections that have initialized under a name."""

    def join_as(name: str) -> Peer:
        peer = open_peer()
        peer.initialize(name)
        return peer

    return join_as


@pytest.fixture
def suffix() -> str:
    """What makes the addresses of a test differ from those of all others."""
    return f".{next(_numbers)}"
