"""Which spawner to use: systemd where its manager answers, else processes of our own."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from busd import AgentsSettings
from busd_plugins.bub.journal import find_journal
from busd_plugins.bub.spawner import Spawner, SpawnFailed
from busd_plugins.bub.subprocess_spawner import SubprocessSpawner
from busd_plugins.bub.systemctl import find_manager
from busd_plugins.bub.systemd_spawner import SystemdSpawner

log = structlog.get_logger()


async def choose_spawner(wanted: str, agents: AgentsSettings, state: Path) -> Spawner:
    """Give the spawner that is wanted, not entered yet; raises SpawnFailed if it cannot be had.

    Only one of a kind may be open for a state directory; `auto` is one of the other two.
    """
    if wanted == "subprocess":
        _warn_if_not_kept(agents)
        return SubprocessSpawner(state=state, agents=agents)
    manager, reason = await find_manager()
    if manager is not None:
        journal = await find_journal()
        place = "files" if journal is None else "the journal"
        log.info("spawner.chosen", spawner="systemd", wanted=wanted, reason=reason, logs=place)
        return SystemdSpawner(state=state, agents=agents, manager=manager, journal=journal)
    if wanted == "systemd":
        raise SpawnFailed(f"workers are to be run by systemd, but {reason}")
    log.info("spawner.chosen", spawner="subprocess", wanted=wanted, reason=reason)
    _warn_if_not_kept(agents)
    return SubprocessSpawner(state=state, agents=agents)


async def spawner_name(wanted: str) -> str:
    """Give the name of the spawner that `choose_spawner` would choose."""
    if wanted != "auto":
        return wanted
    manager, _ = await find_manager()
    return "subprocess" if manager is None else "systemd"


def _warn_if_not_kept(agents: AgentsSettings) -> None:
    """Say that a service takes all its processes with it, those that are to be kept, too."""
    if agents.when_bus_stops == "keep" and is_unit():
        log.warning(
            "workers.not_kept",
            reason="systemd ends them with the bus: they are processes of its service",
            fix='use the spawner "systemd", or set agents.when_bus_stops = "stop"',
        )


def is_unit() -> bool:
    """Tell whether systemd has started this very process."""
    # Not $INVOCATION_ID: all that a unit starts has it, every shell in a terminal, too.
    return "NOTIFY_SOCKET" in os.environ or os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())
