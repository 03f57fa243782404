"""The guard: a unit that ends after the daemon; workers are bound to it, so they end, too.

It does not matter how the daemon ends, nor whether it is a unit itself. Workers that are to be
kept have a guard that waits a while for the next daemon, and then guards that one.
"""

from __future__ import annotations

import os
from pathlib import Path

from busd import AgentsSettings
from busd_plugins.bub.systemctl import ManagerSilent, ServiceManager, last_line

_WAIT = "tail --follow --sleep-interval=0.2 --pid"
# $0 names the daemon, $1 is for how long it may be away.
_GUARD = f"""
while pid=$(cat "$0"); do
    {_WAIT} "$pid" /dev/null
    sleep "$1"
    if [ "$(cat "$0")" = "$pid" ]; then exit 0; fi
done
"""


async def start_guard(
    manager: ServiceManager, household: int, folder: Path, agents: AgentsSettings
) -> str:
    """Be guarded from now on; gives the name of the guard's unit, raises ManagerSilent."""
    is_kept = agents.when_bus_stops == "keep"
    prefix = f"busd-guard-{household:010x}-"
    name = f"{prefix}{'keep' if is_kept else os.getpid()}.service"
    known = _pid_file(folder, name)
    _write_pid(known)
    guards = await manager.states(f"{prefix}*.service")
    if guards.get(name) == "active/running":
        return name  # of an earlier daemon, and now of this one
    seconds = agents.adopt_seconds if is_kept else 0
    script = _GUARD.replace("$", "$$")  # systemd puts variables into a command line itself
    done = await manager.run(
        "systemd-run",
        f"--{manager.flavour}",
        "--quiet",
        "--collect",
        f"--unit={name}",
        "--description=ends the workers after the bus",
        *("sh", "-c", script, str(known).replace("$", "$$"), f"{seconds:g}"),
    )
    if done.returncode != 0:
        raise ManagerSilent(last_line(done.stderr))
    return name


def forget_guard(folder: Path, name: str) -> None:
    """Remove what belongs to a guard that was stopped."""
    _pid_file(folder, name).unlink(missing_ok=True)


def _pid_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.pid"


def _write_pid(path: Path) -> None:
    """Write it at once: the guard may look at any time."""
    for other in path.parent.glob("busd-guard-*.pid"):
        if other != path:
            other.unlink()  # of a daemon that was killed
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(f"{os.getpid()}\n")
    new.replace(path)
