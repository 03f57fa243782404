"""Unfinished turns: what an agent that has ended still owes, for whoever started it.

The ledger (`data/turns.jsonl`) belongs to the agent, which may have put anything in its place. So
no link is followed, only a regular file is opened, and what is read and kept has limits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import UNSET

from busd.agent.ledger import FILE_NAME, LedgerEntry, TurnKey, key_of
from busd.rpc.reading import Id
from busd.vocabulary.payload import decode_payload

MAX_TURNS = 200  # an agent has a hundred that wait, and one that runs
_MAX_BYTES = 128 * 1024 * 1024
_MAX_LINE_BYTES = 4 * 1024 * 1024
_MAX_ID_CHARACTERS = 256
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_decode_entry = msgspec.json.Decoder(LedgerEntry).decode


class UnfinishedTurn(msgspec.Struct, frozen=True):
    """A message that was acked and has no answer; `reply_to` is how whoever wrote it names it."""

    message_id: str
    reply_to: Id
    sender: str = ""  # as in the ledger: two senders may choose the same id


def unfinished_turns(workspace: Path) -> list[UnfinishedTurn]:
    """Return the turns that an agent has not finished, in order; none if that cannot be read."""
    turns: dict[TurnKey, UnfinishedTurn] = {}
    try:
        with os.fdopen(_open_ledger(workspace, os.O_RDONLY), "rb") as ledger:
            while ledger.tell() < _MAX_BYTES and (line := ledger.readline(_MAX_LINE_BYTES)):
                _apply(turns, line)
    except OSError:
        return []
    return list(turns.values())


def finish_turns(workspace: Path, turns: Iterable[UnfinishedTurn]) -> None:
    """Note that an agent which has ended owes these no more; raises OSError if that fails."""
    entries = [
        msgspec.json.encode(LedgerEntry(each.message_id, "done", each.sender)) for each in turns
    ]
    descriptor = _open_ledger(workspace, os.O_WRONLY | os.O_APPEND)
    with os.fdopen(descriptor, "wb") as ledger:
        # It begins with a line end: the last line may have been cut off.
        ledger.write(b"".join(b"\n" + entry for entry in entries) + b"\n")


def _apply(turns: dict[TurnKey, UnfinishedTurn], line: bytes) -> None:
    try:
        entry = _decode_entry(line)
    except (msgspec.MsgspecError, RecursionError):
        return  # cut off when the agent was killed, or never a line of a ledger
    key = key_of(entry, turns)
    if entry.state == "done":
        turns.pop(key, None)
    elif entry.state == "taken" and len(turns) < MAX_TURNS:
        turns[key] = UnfinishedTurn(entry.id, _reply_to(entry), entry.sender)


def _reply_to(entry: LedgerEntry) -> Id:
    try:
        named = UNSET if entry.payload is UNSET else decode_payload(entry.payload).message_id
    except (msgspec.MsgspecError, RecursionError):
        named = UNSET
    if isinstance(named, int):
        return named
    return named[:_MAX_ID_CHARACTERS] if named else entry.id


def _open_ledger(workspace: Path, how: int) -> int:
    folder = os.open(workspace / "data", os.O_RDONLY | os.O_DIRECTORY | _SAFELY)
    try:
        descriptor = os.open(FILE_NAME, how | _SAFELY, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{FILE_NAME} is not a file")
    return descriptor
