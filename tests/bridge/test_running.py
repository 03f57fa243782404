"""`busd bridge NAME`: the bridge of a plugin in the foreground."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from busd import SyncClient
from tests.daemons import PATIENCE_SECONDS, open_daemon

SHOUT = '''
"""Shout: a bridge to nowhere."""

from typing import ClassVar

from busd import Plugin
from busd.bridge.settings import BridgeTable

plugin = Plugin("shout")


class ShoutTable(BridgeTable, frozen=True, kw_only=True):
    packages: ClassVar[dict[str, str]] = {MODULE: "a-package"}
    extra: ClassVar[str] = "shout"
    name: str = "shout-bridge"
    prefix: str = "shout"


@plugin.bridge
async def serve(bridge, table: ShoutTable) -> None:
    @bridge.posts
    async def post(part) -> str:
        return "1"

    await bridge.serve()
'''
ODD = SHOUT.replace("(BridgeTable, frozen=True, kw_only=True)", "(msgspec.Struct)").replace(
    "from busd import Plugin\n", "import msgspec\nfrom busd import Plugin\n"
)


class Operator:
    """Somebody with plugins of their own."""

    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "busd/plugins"
        self.plugins.mkdir(parents=True)
        self.environment = os.environ | {
            "XDG_CONFIG_HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def write(self, text: str, module: str = "anyio") -> None:
        (self.plugins / "shout.py").write_text(text.replace("MODULE", repr(module)))

    def start(self, name: str, address: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "busd", "bridge", name],
            env=self.environment | ({"BUSD_ADDRESS": address} if address else {}),
            stderr=subprocess.PIPE,
            text=True,
        )

    def refusal(self, name: str) -> str:
        process = self.start(name)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 78, said
        return said


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_a_plugin_that_is_not_there_is_named_with_one_that_is_like_it(operator: Operator) -> None:
    operator.write(SHOUT)
    assert operator.refusal("shoutt") == (
        "busd: there is no plugin 'shoutt'; did you mean 'shout'?\n"
    )


def test_a_plugin_without_a_bridge_is_named(operator: Operator) -> None:
    assert operator.refusal("bub") == "busd: the plugin bub has no bridge\n"


def test_a_package_that_is_missing_is_one_line_with_the_command(operator: Operator) -> None:
    operator.write(SHOUT, module="no_such_module")
    assert operator.refusal("shout") == (
        "busd: the bridge shout needs a-package, which is not installed; "
        "run: pip install 'busd[shout]'\n"
    )


def test_settings_that_are_not_those_of_a_bridge_are_named(operator: Operator) -> None:
    operator.write(ODD)
    assert operator.refusal("shout") == "busd: the plugin shout: ShoutTable is no BridgeTable\n"


def test_it_joins_the_bus_and_ends_when_told_to(operator: Operator) -> None:
    operator.write(SHOUT)
    with open_daemon("uvloop") as daemon:
        address = f"unix:{daemon.path}"
        with SyncClient("test:bridge", address=address) as bus:
            with operator.start("shout", address) as process:
                try:
                    anyio.run(_until_joined, bus)
                finally:
                    process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, said


async def _until_joined(bus: SyncClient) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while not any(c["clientId"] == "shout-bridge" for c in bus.status()["connections"]):
            await anyio.sleep(0.02)
