"""The limits of a unit that are really in force: what the kernel says, not what was asked for."""

from __future__ import annotations

import resource
from pathlib import Path

from busd.keeper.launch import Launch
from busd.supervise.service_manager import UNLIMITED, Property, ServiceManager
from busd.supervise.worker import SupervisorSettings

SLICE = "busd-agents.slice"  # as operators know it, who may have set limits of their own for it
_GROUPS = Path("/sys/fs/cgroup")
# Where the kernel keeps each: with one tree of groups, and with a tree for each controller.
_FILES = {
    "memory_max_bytes": ("memory.max", "memory/memory.limit_in_bytes"),
    "cpu_percent": ("cpu.max", "cpu/cpu.cfs_quota_us"),
    "tasks_max": ("pids.max", "pids/pids.max"),
}
_PERIOD_MICROSECONDS = 100_000


async def set_ceiling(manager: ServiceManager, settings: SupervisorSettings) -> None:
    """Set the limits of all workers together; raise ManagerSilent."""
    memory, cpu, tasks = settings.memory_max_bytes, settings.cpu_percent, settings.tasks_max
    ceiling: list[Property] = [
        ("MemoryMax", ("t", UNLIMITED if memory is None else memory)),
        ("CPUQuotaPerSecUSec", ("t", UNLIMITED if cpu is None else _quota(cpu))),
        ("TasksMax", ("t", UNLIMITED if tasks is None else tasks)),
    ]
    await manager.set_properties(SLICE, ceiling)


def limit_properties(launch: Launch) -> list[Property]:
    """Return the properties of a unit for the limits of a worker."""
    limits = {"LimitCORE": 0, "LimitCORESoft": 0}
    if launch.memory_max_bytes is not None:
        limits["MemoryMax"] = launch.memory_max_bytes
        limits["MemorySwapMax"] = 0
        # Where the manager may not limit groups this holds, for each process.
        limits["LimitDATA"] = limits["LimitDATASoft"] = launch.memory_max_bytes
    if launch.file_max_bytes is not None:
        limits["LimitFSIZE"] = limits["LimitFSIZESoft"] = launch.file_max_bytes
    if launch.cpu_percent is not None:
        limits["CPUQuotaPerSecUSec"] = _quota(launch.cpu_percent)
    if launch.tasks_max is not None:
        limits["TasksMax"] = launch.tasks_max
    return [(name, ("t", value)) for name, value in limits.items()]


def _quota(percent: int) -> int:
    """Return microseconds of CPU time per second."""
    return percent * 10_000


def limits_in_force(
    group: str, launch: Launch | None = None, pid: int | None = None
) -> dict[str, str]:
    """Ask the kernel for the limits of a group; those that were wanted are told of in any case."""
    limits = {}
    for name in _FILES:
        is_wanted = launch is not None and getattr(launch, name) is not None
        value = _of_group(name, group)
        if value is None and is_wanted:
            value = "not in force: the manager may not limit it"
            if name == "memory_max_bytes" and pid is not None:
                value = _of_process(pid, resource.RLIMIT_DATA, "for each process")
        if value is not None and (is_wanted or launch is None):
            limits[name] = value
    if launch is not None and launch.file_max_bytes is not None and pid is not None:
        limits["file_max_bytes"] = _of_process(pid, resource.RLIMIT_FSIZE, "for each file")
    return limits


def _of_group(name: str, group: str) -> str | None:
    together, apart = _FILES[name]
    controller, _, file = apart.partition("/")
    for path in (_GROUPS / group.lstrip("/") / together, _GROUPS / controller / group[1:] / file):
        try:
            said = path.read_text().split()
        except OSError:
            continue
        if said and said[0] not in ("max", "-1"):
            return _percent(said) if name == "cpu_percent" else said[0]
    return None


def _percent(said: list[str]) -> str:
    period = int(said[1]) if len(said) > 1 else _PERIOD_MICROSECONDS
    return str(round(100 * int(said[0]) / period))


def _of_process(pid: int, kind: int, scope: str) -> str:
    try:
        soft, _ = resource.prlimit(pid, kind)
    except (OSError, ValueError):
        return "unknown: the worker has ended"
    return "not in force" if soft == resource.RLIM_INFINITY else f"{soft} {scope}"
