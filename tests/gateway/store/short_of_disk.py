"""What the store of the gateway does when it cannot write: `how folder`, a report on stdout.

`disk` fills a small file system that is mounted for this process only (run it under `unshare -m`),
`limit` makes the kernel refuse to let any file grow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
from structlog.testing import capture_logs

from busd.errors import BusdError, ConfigError
from busd.gateway.links import load_key
from busd.gateway.store import Store
from busd.gateway.store_file import StoreFile
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_thread import StoreThread
from busd.gateway.stored import StoreFailed
from tests.gateway.store.opened import conversation, words
from tests.journal.rows import select
from tests.journal.short_of_disk import NoRoom, file_size_limit, full_disk

FAULTS: dict[str, NoRoom] = {"disk": full_disk, "limit": file_size_limit}
SESSION = "lobby-ann"


def keep(name: str, text: str, store: Store) -> int:
    return store.keep(SESSION, words(name, text)).entry.number


def names(store: Store) -> list[str]:
    return [each.id for each in store.page(SESSION).entries]


async def report(how: str, folder: Path) -> dict[str, object]:
    if how == "disk":
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
        subprocess.run(mount, check=True)  # noqa: ASYNC221 - nothing else runs
    path = folder / "gateway.db"
    async with StoreThread(path, StoreLimits()) as thread:
        await thread.run(lambda store: store.create(conversation()))
        await thread.run(partial(keep, "before", ""))
        reasons: list[str] = []

        async def attempt(name: str) -> None:
            try:
                await thread.run(partial(keep, name, "x" * 5_000))
            except StoreFailed as problem:
                reasons.append(str(problem))

        with FAULTS[how](folder):
            for _ in range(2):
                async with anyio.create_task_group() as tasks:
                    for number in range(50):
                        tasks.start_soon(attempt, f"lost {number}")
                meanwhile = await thread.run(names)
            is_failing = thread.is_failing
            start = refusal(
                lambda: StoreFile(folder / "new.db", StoreLimits(), lambda: 0.0).close()
            )
            key = refusal(lambda: load_key(folder))
        after = await thread.run(partial(keep, "after", ""))
        is_failing_after = thread.is_failing
    async with StoreThread(path, StoreLimits()) as thread:
        found = await thread.run(names)
        totals = await thread.run(Store.totals)
    return {
        "failed": len(reasons),
        "reasons name the path": str(folder) in "".join(reasons),
        "is failing": is_failing,
        "read meanwhile": meanwhile,
        "start": start,
        "key": key,
        "number after": after,
        "is failing after": is_failing_after,
        "names": found,
        "entries": totals.entries,
        "integrity": select(path, "PRAGMA integrity_check")[0][0],
    }


def refusal(write: Callable[[], object]) -> str:
    """Return who is at fault when there is no room for a new file."""
    try:
        write()
    except ConfigError:
        return "the settings"
    except BusdError:
        return "the disk"
    return "nobody"


if __name__ == "__main__":
    with capture_logs() as logs:
        result = anyio.run(report, sys.argv[1], Path(sys.argv[2]))
    print(json.dumps({**result, "logs": [line["event"] for line in logs]}))
