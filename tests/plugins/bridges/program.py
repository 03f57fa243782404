"""A bridge as small as it can be: it joins the bus and says what its file says of it.

In its folder, `status.json` is what it answers, and `end` the code with which it ends at once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio

from busd import Client

FOLDER = Path(os.environ["BRIDGE_FOLDER"])


def status() -> dict[str, object]:
    found: dict[str, object] = json.loads((FOLDER / "status.json").read_text())
    if credentials := os.environ.get("CREDENTIALS_DIRECTORY"):
        found["detail"] = (Path(credentials) / "SECRET").read_text()
    return found


async def main() -> None:
    print("the bridge begins", file=sys.stderr, flush=True)
    if (FOLDER / "end").exists():
        sys.exit(int((FOLDER / "end").read_text()))
    async with Client(os.environ["BUSD_CLIENT_ID"]) as bus:
        async for message in bus.messages():
            if message.payload["type"] == "bridge_status":
                await message.reply(status())
            else:
                print(message.payload["content"]["text"], file=sys.stderr, flush=True)
                await message.reply()


anyio.run(main)
