"""Stores of the gateway that are used until they are killed.

For each line of stdin, "path run", a child is started that keeps entries with as many callers as it
likes. Its pid comes first on stdout, then a line for what it tries ("? NAME") and for what it was
told is kept ("! NAME NUMBER").
"""

from __future__ import annotations

import os
import random
import sys
from functools import partial
from pathlib import Path

import anyio

from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_thread import StoreThread
from busd.gateway.stored import Conversation
from tests.gateway.store.opened import conversation, outgoing, words

SESSIONS = [conversation(f"c{number}") for number in range(3)]
MAX_ENTRIES = 150  # more are not kept, so that the oldest are deleted all the time, too
CALLERS = 40


def text_of(name: str) -> str:
    """Return the text of a name; all of it depends on the name."""
    number = sum(position * ord(letter) for position, letter in enumerate(name, 7))
    return name * (1 + number % 100)


def create(new: Conversation, store: Store) -> None:
    if not store.find_session(new.session_id):
        store.create(new)


def say(session_id: str, name: str, store: Store) -> int:
    """Keep an entry, and a message for the bus about every other one."""
    entry = store.keep(session_id, words(name, text_of(name))).entry
    if entry.number % 2:
        message_id = f"{session_id}.{entry.number}"
        store.put_outbox(session_id, outgoing(message_id, name.encode()))
        for old in store.outbox(session_id)[:-20]:
            store.remove_outbox(session_id, old.message_id)
    return entry.number


async def use_forever(path: Path, run: str) -> None:
    async with StoreThread(path, StoreLimits(entries=MAX_ENTRIES)) as thread:
        for each in SESSIONS:
            await thread.run(partial(create, each))
        async with anyio.create_task_group() as tasks:
            for number in range(CALLERS):
                tasks.start_soon(_keep_forever, thread, f"{run}.{number}")


async def _keep_forever(thread: StoreThread, run: str) -> None:
    chance = random.Random(run)
    number = 0
    while True:
        number += 1
        session_id = chance.choice(SESSIONS).session_id
        name = f"{session_id}.{run}.{number}"
        os.write(1, f"? {name}\n".encode())
        kept = await thread.run(partial(say, session_id, name))
        os.write(1, f"! {name} {kept}\n".encode())


def main() -> None:
    for line in sys.stdin:
        path, run = line.rsplit(maxsplit=1)
        child = os.fork()
        if not child:
            os.write(1, f"{os.getpid()}\n".encode())
            anyio.run(use_forever, Path(path), run)
        os.waitpid(child, 0)
        os.write(1, b"killed\n")


if __name__ == "__main__":
    main()
