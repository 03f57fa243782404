"""Where durable rows write, and how fast a disk it is."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

# Many systems have /tmp in memory, where fsync costs nothing.
DIRECTORY = Path("/var/tmp")
SYNCS = 200
BLOCK = bytes(4096)
IN_MEMORY = ("tmpfs", "ramfs")


def find_directory() -> Path:
    """Return the directory that durable rows write to: that of TMPDIR if it is set."""
    return Path(os.environ.get("TMPDIR", DIRECTORY))


def describe_disk() -> str:
    """Return one line about the disk that durable rows write to."""
    directory = find_directory()
    kind = read_file_system(directory)
    milliseconds = measure_sync(directory) * 1000
    if kind in IN_MEMORY:
        return f"Durable rows wrote to {directory}, which is {kind}: IN MEMORY, so ignore them."
    return (
        f"Durable rows wrote to {directory} ({kind}), where appending 4 KiB with fsync took "
        f"{milliseconds:.2f} ms after the run (median of {SYNCS})."
    )


def read_file_system(directory: Path) -> str:
    """Return the type of the file system that a directory is on."""
    path = directory.resolve()
    kind, longest = "unknown", 0
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, found, *_ = line.split(" ")
        # A later mount at the same place hides the earlier one.
        if path.is_relative_to(place) and len(place) >= longest:
            kind, longest = found, len(place)
    return kind


def measure_sync(directory: Path) -> float:
    """Return the median of the seconds that an append with fsync takes."""
    seconds = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            start = time.perf_counter()
            file.write(BLOCK)
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - start)
    return median(seconds)
