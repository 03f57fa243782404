"""A bridge to a chat system in a folder, in a process that a test can kill at a certain point.

`python -m tests.bridge.killable ADDRESS PREFIX FOLDER POINT`: at POINT, "before" or "after" the
post, or after a "draft", it says "here" and hangs. Any other POINT is never reached.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import msgspec

from busd import Bridge
from busd.bridge import LiveTurn, Pace, Part
from tests.bridge.toy import Posted

POSTED = "posted.jsonl"


def posted(folder: Path) -> list[Posted]:
    file = folder / POSTED
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [msgspec.json.decode(line, type=Posted) for line in lines]


def write(folder: Path, message: Posted) -> None:
    with (folder / POSTED).open("ab") as file:
        file.write(msgspec.json.encode(message) + b"\n")


def make_bridge(address: str, prefix: str, folder: Path, point: str) -> Bridge:
    pace = Pace(show_seconds=0.0)
    bridge = Bridge(
        f"killable-{prefix}", prefix, state=folder / "state", pace=pace, address=address
    )

    async def reach(here: str) -> None:
        if here == point:
            print("here", flush=True)
            await anyio.sleep_forever()

    @bridge.posts
    async def post(part: Part) -> str:
        await reach("before")
        message = Posted("", part.chat_id, part.text, part.is_repeat, part.draft)
        write(folder, message)
        await reach("after")
        return "x"

    @bridge.shows
    async def show(live: LiveTurn) -> None:
        if live.text and live.draft:
            await reach("draft")  # it is on record now
        elif live.text:
            live.draft = "draft1"

    return bridge


if __name__ == "__main__":
    _, address, prefix, folder, point = sys.argv
    make_bridge(address, prefix, Path(folder), point).run()
