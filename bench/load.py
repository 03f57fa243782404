"""The load generator's process: reads a job on stdin, runs it, writes the sample to stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from importlib import import_module

import msgspec
import uvloop

from bench.job import Job, Sample
from bench.meter import raise_file_limit

# Imported when asked for: the generator of one client needs none of the others' libraries.
MODULES = {
    "bus": "bench.load_bus",
    "idle": "bench.memory",
    "jetstream": "bench.load_bare_jetstream",
    "jetstream-py": "bench.load_jetstream",
    "nats": "bench.load_nats",
    "nats-py": "bench.load_nats_py",
    "redis-py": "bench.load_redis",
    "sdk": "bench.load_sdk",
}


def main() -> int:
    """Run one job; a fault is one line on stderr and exit code 1."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    raise_file_limit()
    os.sched_setaffinity(0, job.cores)
    faults: list[str] = []
    try:
        sample = uvloop.run(run_job(job))
        # On a line of its own: libraries under test may have printed before.
        print(f"\n{msgspec.json.encode(sample).decode()}")
    except* Exception as group:  # whatever it was, the report names it
        faults = list_faults(group)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


async def run_job(job: Job) -> Sample:
    """Run one job with the clients it asks for."""
    module = import_module(MODULES["idle" if job.workload.idle_connections else job.client])
    run_load: Callable[[Job], Coroutine[None, None, Sample]] = module.run_load
    return await run_load(job)


def list_faults(group: BaseException) -> list[str]:
    """What went wrong, one line for each different fault."""
    if isinstance(group, BaseExceptionGroup):
        lines = [line for fault in group.exceptions for line in list_faults(fault)]
        return list(dict.fromkeys(lines))
    return [f"{type(group).__name__}: {group}"]


if __name__ == "__main__":
    sys.exit(main())
