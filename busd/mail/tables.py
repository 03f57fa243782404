"""The tables of the SQLite engine: one row per mail, dead letter, key and known address."""

# ruff: noqa: S608 (the parts of the statements are constants of this file)

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from busd.bus.mail import DeadFilter, DeadLetter, KnownAddress, Mail
from busd.database import Layout
from busd.mail.engine import KeyRecord
from busd.mail.state import EngineState

# Payloads are last: SQLite then need not read a long one to get at the rest of its row. An index by
# address ends with the id, so it is in the order in which mail was kept.
_COLUMNS = """
    id INTEGER PRIMARY KEY,
    address TEXT,
    sender TEXT,
    message_id, -- without a type: a number stays a number
    kept_at REAL,
    expires_at REAL,
    account TEXT,
    idempotency_key TEXT,
    attempts INTEGER,
    not_before REAL,
    reason TEXT,
    hops INTEGER,
"""
LAYOUT = Layout(
    contents="mailboxes",
    application_id=0x6275736D,  # "busm"
    version=2,
    tables=f"""
CREATE TABLE mail ({_COLUMNS} payload BLOB);
CREATE INDEX mail_by_address ON mail (address);
CREATE INDEX mail_by_expiry ON mail (expires_at);
CREATE TABLE dead ({_COLUMNS} buried_at REAL, payload BLOB);
CREATE INDEX dead_by_account ON dead (account);
CREATE TABLE key (
    id INTEGER PRIMARY KEY,
    sender TEXT,
    key TEXT,
    digest BLOB,
    message_id,
    kept_at REAL,
    account TEXT,
    outcome BLOB
);
CREATE UNIQUE INDEX key_by_sender ON key (sender, key);
CREATE INDEX key_by_time ON key (kept_at);
CREATE TABLE known (address TEXT PRIMARY KEY, seen_at REAL, is_first_hand INTEGER) WITHOUT ROWID;
CREATE INDEX known_by_time ON known (seen_at);
CREATE TABLE sequence (reserved INTEGER);
INSERT INTO sequence VALUES (0);
""",
)

_FIELDS = Mail.__struct_fields__
_NAMES = ", ".join(_FIELDS)
_MARKS = ", ".join("?" * len(_FIELDS))
_INSERT = f"INSERT INTO mail ({_NAMES}) VALUES ({_MARKS})"
_READ = f"SELECT {_NAMES} FROM mail WHERE address = ? AND id > ? ORDER BY id LIMIT ?"
_FIND = f"SELECT {_NAMES} FROM mail WHERE id = ? AND address = ?"
_HAS_MAIL = "SELECT 1 FROM mail WHERE id = ?"
_UPDATE = "UPDATE mail SET attempts = ?, not_before = ?, reason = ? WHERE id = ?"
_DELETE = """
DELETE FROM mail WHERE address = ? AND id BETWEEN ? AND ? RETURNING account, length(payload)
"""
_EXPIRED = "SELECT address, id FROM mail WHERE expires_at <= ? ORDER BY expires_at, id LIMIT ?"
_INSERT_DEAD = f"INSERT INTO dead ({_NAMES}, buried_at) VALUES ({_MARKS}, ?)"
_CHOSEN = """
FROM dead WHERE id > :after AND substr(address, 1, length(:prefix)) = :prefix
AND :sender IN ('', sender) AND (:before IS NULL OR buried_at < :before) ORDER BY id
"""
_READ_DEAD = f"SELECT {_NAMES}, buried_at {_CHOSEN} LIMIT :limit"
_FIND_DEAD = f"SELECT {_NAMES}, buried_at FROM dead WHERE id = ?"
_DELETE_DEAD = "DELETE FROM dead WHERE id = ? RETURNING address, account, length(payload)"
_COUNT = "SELECT {0}, count(*), sum(length(payload)) FROM {1} GROUP BY {0}"
_FORGET_KEYS_BEFORE = """
DELETE FROM key WHERE kept_at < ? AND NOT EXISTS (SELECT 1 FROM mail WHERE mail.id = key.id)
"""
_FORGET_OLDEST_KEYS = """
DELETE FROM key WHERE account = :account
AND id <= (SELECT id FROM key WHERE account = :account ORDER BY id DESC LIMIT 1 OFFSET :max_count)
"""
# To count takes 18 µs with 10,000 of them, to skip so many with OFFSET 270.
_FORGET_EARLIEST = """
DELETE FROM known WHERE address IN (
    SELECT address FROM known ORDER BY seen_at, address
    LIMIT max((SELECT count(*) FROM known) - ?, 0)
)
"""


class SqlTables:
    """`busd.mail.engine.Tables` in an SQLite database, within the caller's transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._new: list[tuple[Any, ...]] = []  # rows of mail that are not inserted yet

    # Transactions

    def begin(self) -> None:
        self._new.clear()
        self._db.execute("BEGIN")

    def commit(self, reserved: int | None) -> None:
        """Commit; if given, record the end of the numbers that are reserved."""
        self._flush()
        if reserved is not None:
            self._db.execute("UPDATE sequence SET reserved = ?", (reserved,))
        self._db.execute("COMMIT")

    def load(self, state: EngineState) -> None:
        """Count what there is per address and per sending identity."""
        for address, count, size in self._db.execute(_COUNT.format("address", "mail")):
            state.add(address, count, size)
        for account, count, size in self._db.execute(_COUNT.format("account", "mail")):
            state.charge(account, count, size)
        for address, count, size in self._db.execute(_COUNT.format("address", "dead")):
            state.add(address, dead=count, dead_bytes=size)
        for account, count, size in self._db.execute(_COUNT.format("account", "dead")):
            state.charge_dead(account, count, size)
        state.commit()

    def _flush(self) -> None:
        """Insert new mail: one call for all that arrived since the last other operation."""
        if self._new:
            self._db.executemany(_INSERT, self._new)
            self._new.clear()

    # Mail

    def insert(self, mail: Mail) -> None:
        self._new.append(_row(mail))

    def read(self, address: str, after: int, limit: int) -> Iterator[Mail]:
        self._flush()
        return map(_mail, self._db.execute(_READ, (address, after, limit)))

    def find(self, address: str, number: int) -> Mail | None:
        self._flush()
        row = self._db.execute(_FIND, (number, address)).fetchone()
        return _mail(row) if row else None

    def has_mail(self, number: int) -> bool:
        self._flush()
        return self._db.execute(_HAS_MAIL, (number,)).fetchone() is not None

    def update(self, mail: Mail) -> None:
        self._db.execute(_UPDATE, (mail.attempts, mail.not_before, mail.reason, mail.id))

    def delete(self, address: str, first: int, last: int) -> list[tuple[str, int]]:
        self._flush()
        return self._db.execute(_DELETE, (address, first, last)).fetchall()

    def expired(self, now: float, limit: int) -> list[tuple[str, int]]:
        self._flush()
        return self._db.execute(_EXPIRED, (now, limit)).fetchall()

    # Keys

    def find_key(self, sender: str, key: str) -> KeyRecord | None:
        query = "SELECT * FROM key WHERE sender = ? AND key = ?"
        row = self._db.execute(query, (sender, key)).fetchone()
        return KeyRecord(*row) if row else None

    def put_key(self, key: KeyRecord) -> None:
        values = msgspec.structs.astuple(key)
        self._db.execute("INSERT OR REPLACE INTO key VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def set_outcome(self, number: int, outcome: bytes) -> None:
        self._db.execute("UPDATE key SET outcome = ? WHERE id = ?", (outcome, number))

    def renumber_key(self, old: int, new: int) -> None:
        self._db.execute("UPDATE key SET id = ?, outcome = NULL WHERE id = ?", (new, old))

    def forget_keys_before(self, when: float) -> int:
        self._flush()
        return self._db.execute(_FORGET_KEYS_BEFORE, (when,)).rowcount

    def count_keys(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM key").fetchone()[0])

    def keys_by_account(self) -> dict[str, int]:
        return dict(self._db.execute("SELECT account, count(*) FROM key GROUP BY account"))

    def forget_oldest_keys(self, account: str, max_count: int) -> int:
        values = {"account": account, "max_count": max_count}
        return self._db.execute(_FORGET_OLDEST_KEYS, values).rowcount

    # Dead letters

    def insert_dead(self, letter: DeadLetter) -> None:
        self._db.execute(_INSERT_DEAD, (*_row(letter.mail), letter.buried_at))

    def read_dead(self, chosen: DeadFilter, after: int, limit: int) -> Iterator[DeadLetter]:
        values = {**_values(chosen), "after": after, "limit": limit}
        return map(_letter, self._db.execute(_READ_DEAD, values))

    def find_dead(self, number: int) -> DeadLetter | None:
        row = self._db.execute(_FIND_DEAD, (number,)).fetchone()
        return _letter(row) if row else None

    def ids_of_dead(self, chosen: DeadFilter) -> list[int]:
        values = {**_values(chosen), "after": 0}
        return [number for (number,) in self._db.execute(f"SELECT id {_CHOSEN}", values)]

    def oldest_dead(self, account: str) -> int | None:
        query = "SELECT id FROM dead WHERE account = ? ORDER BY id LIMIT 1"
        row = self._db.execute(query, (account,)).fetchone()
        return row[0] if row else None

    def delete_dead(self, ids: list[int]) -> list[tuple[str, str, int]]:
        found = (self._db.execute(_DELETE_DEAD, (number,)).fetchall() for number in ids)
        return [row for rows in found for row in rows]

    # Known addresses

    def remember(self, known: KnownAddress, max_count: int) -> None:
        row = known.address, known.seen_at, known.is_first_hand
        self._db.execute("INSERT OR REPLACE INTO known VALUES (?, ?, ?)", row)
        self._db.execute(_FORGET_EARLIEST, (max_count,))

    def forget(self, address: str) -> None:
        self._db.execute("DELETE FROM known WHERE address = ?", (address,))

    def known(self, since: float) -> list[KnownAddress]:
        query = "SELECT * FROM known WHERE seen_at >= ? ORDER BY address"
        rows = self._db.execute(query, (since,))
        return [KnownAddress(address, at, bool(first)) for address, at, first in rows]


def _row(mail: Mail) -> tuple[Any, ...]:
    return tuple([getattr(mail, field) for field in _FIELDS])


def _mail(row: tuple[Any, ...]) -> Mail:
    return Mail(**dict(zip(_FIELDS, row, strict=False)))  # a dead letter's row is longer


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    return DeadLetter(_mail(row), row[-1])


def _values(chosen: DeadFilter) -> dict[str, Any]:
    return {"prefix": chosen.prefix, "sender": chosen.sender, "before": chosen.buried_before}
