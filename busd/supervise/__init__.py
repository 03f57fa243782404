"""Processes that the bus starts: start, watch, limit and end them, and read what they print.

This module is public: plugins may import the names below. Nothing here knows what the processes
are for; whoever starts one passes plain values (`Launch`).

    spawners = Spawners(state, SupervisorSettings(), tasks.start_soon)
    spawner = await spawners.get("auto")
    process = await spawner.start(Launch("clock", ["date"], directory))
    async for report in process.reports(): ...
"""

from __future__ import annotations

from busd.keeper.folders import make_folder, open_folder, replace_file
from busd.keeper.launch import Launch
from busd.supervise.logs import LogLine, LogReader
from busd.supervise.service import (
    Service,
    ServiceState,
    WantedService,
    configuration_places,
)
from busd.supervise.spawners import Spawners
from busd.supervise.worker import (
    Report,
    Spawner,
    SpawnFailed,
    SupervisedProcess,
    SupervisorSettings,
)

__all__ = [
    "Launch",
    "LogLine",
    "LogReader",
    "Report",
    "Service",
    "ServiceState",
    "SpawnFailed",
    "Spawner",
    "Spawners",
    "SupervisedProcess",
    "SupervisorSettings",
    "WantedService",
    "configuration_places",
    "make_folder",
    "open_folder",
    "replace_file",
]
