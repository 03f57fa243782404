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

from busd.keeper.launch import Launch
from busd.supervise.logs import SystemdJournal
from busd.supervise.service_manager import ServiceManager
from busd.supervise.subprocess import SubprocessSpawner
from busd.supervise.systemd import SystemdSpawner
from busd.supervise.worker import Spawner, SupervisorSettings


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
    settings = SupervisorSettings(**wanted["settings"])
    if wanted["kind"] == "subprocess":
        return SubprocessSpawner(state=state, settings=settings)
    asked = {"flavour": "user", "runtime": None, **wanted["manager"]}
    runtime = None if asked["runtime"] is None else Path(asked["runtime"])
    manager = ServiceManager(asked["flavour"], runtime=runtime)
    journal = SystemdJournal() if wanted["kind"] == "journal" else None
    return SystemdSpawner(state=state, settings=settings, manager=manager, journal=journal)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    anyio.run(main, asked, backend=asked["backend"])
