"""The ledger: which messages an agent has taken, and which of them still want an answer.

A message is acked when it is taken, long before it is answered. So it is written down first: an
agent that is killed answers it when it is started again, and one that comes twice is answered
once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.agent.folder import append_private, read_lines, write_private

log = logging.getLogger("busd.agent")

FILE_NAME = "turns.jsonl"  # in the workspace's data folder
MAX_KNOWN = 1_000
_COMPACT_BYTES = 4 * 1024 * 1024
_MAX_FILE_BYTES = 256 * 1024 * 1024


class TurnKey(NamedTuple):
    """What tells messages apart: ids are chosen by senders, so two may choose the same one."""

    sender: str
    message_id: str


class Asked(msgspec.Struct, frozen=True):
    """A message that wants an answer."""

    message_id: str
    sender: str
    payload: Raw

    @property
    def key(self) -> TurnKey:
        return TurnKey(self.sender, self.message_id)


class LedgerEntry(msgspec.Struct, omit_defaults=True):
    """One line of the file; `released`: its turn was stopped, and not for any fault of its own."""

    id: str
    state: Literal["taken", "started", "released", "done"]
    sender: str = ""
    payload: Raw | UnsetType = UNSET
    times: int = 1


_decode_entry = msgspec.json.Decoder(LedgerEntry).decode


def key_of(entry: LedgerEntry, taken: Iterable[TurnKey]) -> TurnKey:
    """Return the key of an entry; older ledgers have a sender only where they say `taken`."""
    if entry.sender:
        return TurnKey(entry.sender, entry.id)
    return next((key for key in taken if key.message_id == entry.id), TurnKey("", entry.id))


class Ledger:
    """What was taken and what was done, in memory and, if there is a workspace, in a file."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._done: dict[TurnKey, None] = {}  # the last thousand, oldest first
        self._open: dict[TurnKey, Asked] = {}
        self._starts: dict[TurnKey, int] = {}
        self._bytes_after_compacting = 0
        self._load()

    def knows(self, key: TurnKey) -> bool:
        return key in self._open or key in self._done

    def unanswered(self) -> list[Asked]:
        """Return what was taken and not finished, in the order it came."""
        return list(self._open.values())

    def take(self, asked: Asked) -> None:
        self._note(LedgerEntry(asked.message_id, "taken", asked.sender, asked.payload))

    def start(self, key: TurnKey) -> int:
        """Record that its turn begins; return how often it has begun without an end."""
        self._note(LedgerEntry(key.message_id, "started", key.sender))
        return self._starts.get(key, 0)

    def release(self, keys: Iterable[TurnKey]) -> None:
        for sender, message_id in keys:
            self._note(LedgerEntry(message_id, "released", sender))

    def finish(self, keys: Iterable[TurnKey]) -> None:
        for sender, message_id in keys:
            self._note(LedgerEntry(message_id, "done", sender))

    def _note(self, entry: LedgerEntry) -> None:
        self._apply(entry)
        if self._file is None:
            return
        try:
            size = append_private(self._file, msgspec.json.encode(entry) + b"\n")
            if size > self._bytes_after_compacting + _COMPACT_BYTES:
                self._compact(self._file)
        except OSError as problem:
            # Better an answer that a restart forgets than none.
            log.warning("%s cannot be written: %s", self._file, problem)

    def _apply(self, entry: LedgerEntry) -> None:
        key = key_of(entry, self._open)
        match entry.state:
            case "taken":
                payload = Raw(b"{}") if entry.payload is UNSET else entry.payload.copy()
                self._open[key] = Asked(entry.id, entry.sender, payload)
            case "started" if key in self._open:
                self._starts[key] = self._starts.get(key, 0) + entry.times
            case "released" if key in self._starts:
                self._starts[key] -= 1
            case "done":
                self._open.pop(key, None)
                self._starts.pop(key, None)
                self._done[key] = None
                if len(self._done) > MAX_KNOWN:
                    del self._done[next(iter(self._done))]

    def _load(self) -> None:
        if self._file is None:
            return
        try:
            line = b"\n"
            for line in read_lines(self._file, _MAX_FILE_BYTES):
                self._load_line(line)
            if not line.endswith(b"\n"):
                self._compact(self._file)  # the next line must not begin where this one broke off
        except OSError as problem:
            log.warning("%s cannot be read: %s", self._file, problem)

    def _load_line(self, line: bytes) -> None:
        try:
            self._apply(_decode_entry(line))
        except (msgspec.MsgspecError, RecursionError):
            pass  # cut off when the machine went down, or somebody has been at the file

    def _compact(self, file: Path) -> None:
        """Write only what still matters."""
        entries = [LedgerEntry(each.message_id, "done", each.sender) for each in self._done]
        for key, asked in self._open.items():
            entries.append(LedgerEntry(asked.message_id, "taken", asked.sender, asked.payload))
            if starts := self._starts.get(key):
                entries.append(LedgerEntry(asked.message_id, "started", asked.sender, times=starts))
        content = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        write_private(file, content)
        self._bytes_after_compacting = len(content)
