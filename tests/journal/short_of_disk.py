"""What the activity log does when there is no room for it: `how folder`, a report on stdout.

`disk` fills a small file system that is mounted for this process only (run it under `unshare -m`),
`limit` makes the kernel refuse to let any file grow.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from structlog.testing import capture_logs

from busd.errors import BusdError, ConfigError
from busd.journal.journal import Journal
from busd.journal.settings import JournalSettings
from busd.journal.writer import JournalWriter
from tests.journal.rows import PATIENCE_SECONDS, ended, nothing_open, select, statuses

NoRoom = Callable[[Path], AbstractContextManager[None]]
SETTINGS = JournalSettings(max_backlog_rows=1000)


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Leave no room on the disk that the folder is on."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65_536, 1):  # to the last byte
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass
    yield
    ballast.unlink()


@contextmanager
def file_size_limit(folder: Path) -> Iterator[None]:
    """Let no file be written beyond its first bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def wait_for_error(writer: JournalWriter) -> None:
    with writer._changed:
        assert writer._changed.wait_for(lambda: writer.write_errors, PATIENCE_SECONDS)


def report(how: str, folder: Path) -> dict[str, object]:
    no_room: NoRoom = full_disk if how == "disk" else file_size_limit
    if how == "disk":
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
        subprocess.run(mount, check=True)
    path = folder / "journal.db"
    writer = JournalWriter(path, SETTINGS)
    journal = Journal(writer, SETTINGS)
    journal.add(ended(0, "before"))
    journal.pump(nothing_open)
    assert writer.wait_until_idle(PATIENCE_SECONDS)
    with no_room(folder):
        for call in range(1, 501):
            journal.add(ended(call, payload="x" * 500))
        journal.pump(nothing_open)
        wait_for_error(writer)
        start = time.thread_time()
        for call in range(501, 10_501):  # the messages go on
            journal.add(ended(call, payload="x" * 500))
            if not call % 100:
                journal.pump(nothing_open)
        seconds = time.thread_time() - start
        backlog, dropped = journal.backlog_rows, journal.dropped
        seen = list(statuses(path))
    assert writer.wait_until_written(PATIENCE_SECONDS)
    journal.pump(nothing_open)
    assert writer.wait_until_written(PATIENCE_SECONDS)
    written = len(statuses(path))
    journal.close(PATIENCE_SECONDS)
    return {
        "seen meanwhile": seen,
        "backlog": backlog,
        "dropped": dropped,
        "written": written,
        "is failing": writer.is_failing,
        "microseconds per row": seconds / 10_000 * 1e6,
        "integrity": select(path, "PRAGMA integrity_check")[0][0],
        "start": refusal(no_room, folder),
    }


def refusal(no_room: NoRoom, folder: Path) -> str:
    """Return the error when there is no room for a new log: not a mistake in the settings."""
    with no_room(folder):
        try:
            JournalWriter(folder / "new.db", SETTINGS)
        except ConfigError:
            return "a mistake in the settings"
        except BusdError as problem:
            return str(problem)
    return ""


if __name__ == "__main__":
    with capture_logs() as logs:
        found = report(sys.argv[1], Path(sys.argv[2]))
    print(json.dumps({**found, "logs": [line["event"] for line in logs]}))
