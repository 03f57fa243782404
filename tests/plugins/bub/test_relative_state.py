"""A state directory that is named from where the bus was started."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.daemons import Daemon, Loop, serve_args, start_busd
from tests.plugins.bub.bridges import light_workers, open_bridge
from tests.systemd.managers import ROOT

pytestmark = pytest.mark.anyio


async def test_a_worker_starts_though_the_state_directory_was_named_by_a_relative_path(
    loop: Loop,
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    args = serve_args(folder, loop, light_workers())
    up = "../" * (len(ROOT.parts) - 1)
    args[args.index("--state") + 1] = f"{up}{str(folder / 'state').lstrip('/')}"
    daemon = Daemon(start_busd(args, folder), folder)
    try:
        async with open_bridge(daemon) as bridge:
            ack = await bridge.route("1", "hello")
            assert ack.success, ack.message
            workspace = Path((await bridge.agent())["workspace"])
            assert workspace.parent == folder / "state" / "workspaces"
    finally:
        assert daemon.stop() == 0
        daemon.close()
        shutil.rmtree(folder)
