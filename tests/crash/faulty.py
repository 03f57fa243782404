"""A daemon that is killed at one write to its mailboxes: before, in the middle of, or after it.

The middle is a write that has not reached the disk when the power fails: the write-ahead log as it
was is copied before the write, and `tear_log` puts a part of the new one over it after the kill.
The kernel keeps what a killed process wrote, so this cannot be done by a kill alone.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from pathlib import Path
from typing import Any, Literal

import msgspec

Moment = Literal["before", "middle", "after"]
_FEW_PAGES = 16  # in the log when it is written back, so that this happens within a few writes
_BEFORE = "-wal.before"


class Fault(msgspec.Struct):
    """Kill the process at its n-th write."""

    number: int
    moment: Moment


def install(fault: Fault) -> None:
    """Have the database of the mailboxes count its writes in this process."""
    connect = sqlite3.connect

    def connect_counting(path: Path, **options: Any) -> sqlite3.Connection:
        is_mail = str(path).endswith("mail.db")
        options["factory"] = _Counting if is_mail else sqlite3.Connection
        db: sqlite3.Connection = connect(path, **options)
        if isinstance(db, _Counting):
            db.fault, db.path = fault, path
        return db

    sqlite3.connect = connect_counting  # type: ignore[assignment]  # of the calls that we make


class _Counting(sqlite3.Connection):
    """A connection that counts what is committed, and kills its process."""

    fault: Fault
    path: Path

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA wal_autocheckpoint"):
            sql = f"PRAGMA wal_autocheckpoint = {_FEW_PAGES}"
        if sql == "COMMIT" or (sql.startswith("UPDATE") and not self.in_transaction):
            return self._write(lambda: super(_Counting, self).execute(sql, *values))
        return super().execute(sql, *values)

    def executescript(self, sql: str) -> sqlite3.Cursor:
        return self._write(lambda: super(_Counting, self).executescript(sql))

    def _write(self, write: Any) -> sqlite3.Cursor:
        self.fault.number -= 1
        if self.fault.number:
            result: sqlite3.Cursor = write()
            return result
        if self.fault.moment == "middle":
            # Copying pages back into the database would make the log durable first.
            super().execute("PRAGMA wal_autocheckpoint = 0").fetchall()
            log = Path(f"{self.path}-wal")
            Path(f"{self.path}{_BEFORE}").write_bytes(log.read_bytes() if log.exists() else b"")
        if self.fault.moment != "before":
            write()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("killed")


def tear_log(path: Path, chance: random.Random) -> None:
    """Leave only a part of the last write in the log, as a loss of power does."""
    before, log = Path(f"{path}{_BEFORE}"), Path(f"{path}-wal")
    if not before.exists():
        return  # it ended before that write
    old, new = before.read_bytes(), log.read_bytes()
    first = next((at for at, byte in enumerate(new) if old[at : at + 1] != bytes([byte])), len(new))
    cut = chance.randrange(first, len(new)) if first < len(new) else len(new)
    log.write_bytes(new[:cut] + old[cut:])
    before.unlink()
