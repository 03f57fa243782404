"""What a process has used: CPU time and memory, read from outside."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

# Part of the kernel's number for the CPU clock of a process, see clock_getcpuclockid(3). That clock
# counts all threads, ended ones too, in nanoseconds; /proc/PID/stat counts in steps of 10 ms.
CPUCLOCK_SCHED = 2


def read_cpu_seconds(pid: int) -> float:
    """CPU time, user and system, of a whole process so far."""
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED) / 1e9


def read_resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM now."""
    # smaps_rollup walks the pages: statm's counters lag by up to some hundred KiB.
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} shows no Rss")


def raise_file_limit() -> int:
    """Allow this process and its children as many open files as the system lets them have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def split_cores() -> tuple[set[int], set[int]]:
    """Cores for a server with one busy thread, and the one core for its generator."""
    cores = os.sched_getaffinity(0)
    return cores - {max(cores)} or cores, {max(cores)}


def confine(pid: int, cores: set[int]) -> None:
    """Let all threads of a process run on these cores only."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def describe_machine() -> dict[str, str | int]:
    """The facts about this machine that a figure depends on."""
    system = os.uname()
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count() or 0,
        "kernel": f"{system.sysname} {system.release}",
    }
