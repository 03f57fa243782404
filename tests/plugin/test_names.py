"""Who may take which name: asked of plugins, in every policy."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.daemons import Loop
from tests.plugin.conftest import open_plugged
from tests.wire_peers import connect

NAMES = '''"""Names: no dogs."""

from busd import Identity, Plugin

plugin = Plugin("names")


@plugin.checks_names
def check(name: str, identity: Identity) -> str | None:
    if name == "crash":
        raise ValueError("secret")
    return f"no dogs of uid {identity.uid is not None}" if name.startswith("dog:") else None
'''


@pytest.mark.parametrize("policy", ["open", "strict"])
def test_a_name_that_a_plugin_minds_is_refused_until_the_plugin_is_gone(
    loop: Loop, policy: str, opened: ExitStack
) -> None:
    with open_plugged(loop, {"names.py": NAMES}, {"policy": policy}) as plugged:
        plugged.daemon.is_blamed = True
        peer = connect(plugged.daemon, "unix")
        opened.callback(peer.close)
        error = peer.answer_to(peer.request("initialize", {"clientId": "dog:1"}))["error"]
        assert (error["code"], error["message"]) == (-32602, "no dogs of uid True")
        assert error["data"] == {"rule": "name.names"}
        (plugged.plugins / "names.py").unlink()
        plugged.reload()
        peer.initialize("dog:1")


def test_a_check_that_fails_keeps_nobody_off_the_bus(loop: Loop, opened: ExitStack) -> None:
    with open_plugged(loop, {"names.py": NAMES}) as plugged:
        plugged.daemon.is_blamed = True
        peer = connect(plugged.daemon, "unix")
        opened.callback(peer.close)
        peer.initialize("crash")
        fault = plugged.listed()["names"]["lastFault"]
        assert fault == "checks_names: ValueError: secret"
