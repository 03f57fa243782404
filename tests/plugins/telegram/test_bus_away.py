"""The bus is away: users write all the same, and get their answers when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemons import open_daemon
from tests.plugins.telegram.rig import Rig, poll_until
from tests.plugins.telegram.server import Telegram

pytestmark = pytest.mark.anyio
SETTINGS = {"plugins.disabled": ["bub"]}


async def test_what_users_write_while_the_bus_is_away_stays_at_telegram(
    server: Telegram, tmp_path: Path
) -> None:
    with open_daemon("uvloop", SETTINGS) as daemon:
        rig = Rig(server, f"unix:{daemon.path}", "", tmp_path)
        async with rig.both() as (bridge, agent):
            server.says("before")
            await agent.heard(1)
            await poll_until(lambda: server.confirmed == [1000])
            daemon.process.kill()
            daemon.wait()
            await poll_until(lambda: not bridge.status.is_on_bus)
            server.says("one")
            server.says("two")
            server.says("elsewhere", 8)
            polls = len(server.calls("getUpdates"))
            await poll_until(lambda: len(server.calls("getUpdates")) >= polls + 3)
            assert server.confirmed == [1000]
            daemon.start_again("uvloop", SETTINGS)
            await agent.heard(4)
            await poll_until(lambda: len(server.confirmed) == 4)
    assert [each for each in agent.texts() if each != "elsewhere"] == ["before", "one", "two"]
