"""A worker whose effect happens once per message, however often it is delivered.

The recipe: remember the id of a message in the transaction that has its effect, and ack it after
the commit. Killed before the commit, the worker has done nothing, and the bus delivers the message
again. Killed between the commit and the ack, it finds the id when the message comes again, and
only acks it. The id belongs to the sender, so both are the key. `once` is all there is to it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from busd import Client
from tests.crash.forks import AGAIN, fork_forever
from tests.crash.sender import open_client

_SCHEMA = """
CREATE TABLE IF NOT EXISTS done (
    sender TEXT, message_id TEXT, PRIMARY KEY (sender, message_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counted (total INTEGER, messages INTEGER, repeated INTEGER);
INSERT INTO counted SELECT 0, 0, 0 WHERE NOT EXISTS (SELECT * FROM counted);
"""


class Count(msgspec.Struct, rename="camel"):
    """What a message asks for."""

    number: int


class Counter:
    """The sum of the numbers in all messages."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL").fetchall()
        self._db.execute("PRAGMA synchronous = FULL")  # an ack says that the disk has it
        self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")

    def once(self, sender: str, message_id: str, number: int) -> None:
        """Add a number, unless this message was counted before."""
        self._db.execute("BEGIN IMMEDIATE")
        done = self._db.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (sender, message_id))
        if done.rowcount:
            effect = "UPDATE counted SET total = total + ?, messages = messages + 1"
            self._db.execute(effect, (number,))
        else:
            self._db.execute("UPDATE counted SET repeated = repeated + 1")
        self._db.execute("COMMIT")

    def read(self) -> tuple[int, int, int]:
        """Return the sum, how many messages were counted, and how many came again."""
        total, messages, repeated = self._db.execute("SELECT * FROM counted").fetchone()
        return total, messages, repeated

    def close(self) -> None:
        self._db.close()


async def serve(name: str, address: str, path: Path, events: int) -> None:
    """Count until a signal asks to end."""
    counter = Counter(path)
    client: Client = await open_client(name, address)
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_count, client, counter, events)
            async for _ in signals:
                break
            tasks.cancel_scope.cancel()
    await client.__aexit__(None, None, None)
    os._exit(AGAIN)


async def _count(client: Client, counter: Counter, events: int) -> None:
    async for message in client.messages():
        counter.once(message.sender, message.message_id, message.read(Count).number)
        await message.reply()
        with suppress(BlockingIOError):
            os.write(events, b".")


def main(args: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--events", type=int, required=True)
    chosen = parser.parse_args(args)
    path = chosen.folder / "counter.db"
    fork_forever(
        chosen.name,
        lambda: anyio.run(serve, chosen.name, chosen.address, path, chosen.events),
    )
