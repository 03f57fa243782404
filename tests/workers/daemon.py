"""A daemon for the tests: only its spawner. Started as a process of its own, to be killed.

Arguments: a JSON object. It starts each worker, says so in a line, and waits to be killed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec

from busd import AgentsSettings
from busd.plugin.loader import bundled_folder, use_folders

use_folders([bundled_folder()])

from busd_plugins.bub.journal import Journal  # noqa: E402 - the folder comes first
from busd_plugins.bub.spawner import Launch, Spawner  # noqa: E402
from busd_plugins.bub.subprocess_spawner import SubprocessSpawner  # noqa: E402
from busd_plugins.bub.systemctl import ServiceManager  # noqa: E402
from busd_plugins.bub.systemd_spawner import SystemdSpawner  # noqa: E402


async def main(wanted: dict[str, Any]) -> None:  # Any: decoded JSON, of the test's
    async with spawner_of(wanted) as spawner:
        for each in wanted["launches"]:
            launch = msgspec.convert(each, Launch, dec_hook=lambda kind, value: kind(value))
            worker = await spawner.start(launch)
            said = {"unit": worker.unit, "pid": worker.pid, "log": worker.log}
            print(json.dumps(said), flush=True)
        await anyio.sleep_forever()


def spawner_of(wanted: dict[str, Any]) -> Spawner:
    state = Path(wanted["state"])
    agents = AgentsSettings(**wanted["agents"])
    if wanted["kind"] == "subprocess":
        return SubprocessSpawner(state=state, agents=agents)
    manager = ServiceManager(**{"flavour": "user", **wanted["manager"]})
    journal = Journal() if wanted["kind"] == "journal" else None
    return SystemdSpawner(state=state, agents=agents, manager=manager, journal=journal)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    anyio.run(main, asked, backend=asked["backend"])
