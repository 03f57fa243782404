"""What a bridge does when its ledger cannot be written: `how folder`, a report on stdout.

`disk` fills a small file system that is mounted for this process only (run it under `unshare -m`),
`limit` makes the kernel refuse to let any file grow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio

from busd import Bridge, Receipt
from busd.bridge.ledger import Key, Ledger
from tests.bridge.toy import Place, ToyAgent, poll_until
from tests.daemons import open_daemon
from tests.journal.short_of_disk import NoRoom, file_size_limit, full_disk

FAULTS: dict[str, NoRoom] = {"disk": full_disk, "limit": file_size_limit}


async def report(how: str, folder: Path, address: str) -> dict[str, object]:
    if how == "disk":
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
        subprocess.run(mount, check=True)  # noqa: ASYNC221 - nothing else runs
    place = Place(address, "", folder)
    async with place.serving() as bridge, place.agent() as agent:
        before = await agent.reply("before")
        with FAULTS[how](folder):
            full = await agent.reply("lost", "full")
            is_failing = bridge.status.is_disk_failing
        after = await agent.reply("after", "2")
        late = await post_without_room(how, folder, place, bridge, agent)
        repeated = bridge.status.repeated
        await poll_until(lambda: not bridge.status.is_disk_failing)
    ledger = Ledger(place.state / "bridge.db")
    recorded = await ledger.is_done(Key("reply", (agent.bus.client_id, "r3", "")))
    ledger.close()
    return {
        "before": [each.message for each in before.acks if not each.success],
        "while full": [full.acks[0].message, full.acks[0].should_retry is True],
        "is failing": is_failing,
        "after": [each.message for each in after.acks if not each.success],
        "not recorded at first": [each.message for each in late.acks if not each.success],
        "posted": [each.text for each in place.toy.posted],
        "repeated": repeated,
        "recorded": recorded,
    }


async def post_without_room(
    how: str, folder: Path, place: Place, bridge: Bridge, agent: ToyAgent
) -> Receipt:
    """Post a reply while the disk gets full, and make room when that was noticed."""
    gate = place.toy.gates["late"] = anyio.Event()
    receipts: list[Receipt] = []

    async def send() -> None:
        receipts.append(await agent.reply("late", "late"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await place.toy.wait_until(lambda: "late" in place.toy.tried)
        with FAULTS[how](folder):
            gate.set()
            await poll_until(lambda: bridge.status.is_disk_failing)
            assert not receipts
    return receipts[0]


if __name__ == "__main__":
    with open_daemon("uvloop", {"plugins.disabled": ["bub"]}) as daemon:
        result = anyio.run(report, sys.argv[1], Path(sys.argv[2]), f"unix:{daemon.path}")
    print(json.dumps(result))
