"""The record: what this bridge has to know after a restart, on the disk.

| table | what | limit |
| --- | --- | --- |
| `position` | the last message of a channel that was pushed, or ignored | 10,000 |
| `own` | the messages that we have posted, by nonce | 10,000 |
| `question` | the prompts that are shown with buttons | 1,000 |
| `fact` | since when the bot is served | |
"""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path

import msgspec

from busd import ConfigError, Refuse
from busd.database import DatabaseFile, Layout

log = logging.getLogger("busd.discord")

_FILE = "discord.db"
_LAYOUT = Layout(
    contents="record of the bridge",
    tables="""
CREATE TABLE position (channel INTEGER PRIMARY KEY, message INTEGER NOT NULL,
    is_direct INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE own (nonce TEXT PRIMARY KEY, message INTEGER NOT NULL, at REAL NOT NULL);
CREATE INDEX own_message ON own (message);
CREATE TABLE question (id TEXT PRIMARY KEY, chat TEXT NOT NULL, turn TEXT NOT NULL,
    is_open INTEGER NOT NULL, body BLOB NOT NULL, at REAL NOT NULL);
CREATE INDEX question_open ON question (chat) WHERE is_open;
CREATE TABLE fact (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
""",
    application_id=0x62757363,  # "busc"
    version=1,
    is_synced=False,
)
_LIMITS = {"position": 10_000, "own": 10_000, "question": 1_000}
_TRIM_EVERY = 500  # writes


class Question(msgspec.Struct):
    """A prompt that is shown with buttons or a menu."""

    chat_id: str
    prompt_id: str
    text: str
    values: tuple[str, ...]  # of the options, in their order
    labels: tuple[str, ...]
    turn: str
    user_id: str = ""  # who was asked; "": not known, so anybody who may write


class Position(msgspec.Struct, frozen=True):
    """The last message of a channel that needs no more work."""

    message: int
    is_direct: bool


class Record(DatabaseFile):
    """The file; all writes are small, and happen at once.

    The constructor raises ConfigError, or BusdError if the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self._writes = 0
        super().__init__(folder / _FILE, _LAYOUT)

    def on_moved(self, aside: str, problem: str) -> None:
        log.warning("%s is damaged (%s) and was renamed to %s", self.path, problem, aside)

    def _write(self, words: str, *values: object) -> bool:
        """Return whether it is on the disk; without it, more is read and looked for again."""
        try:
            self.open().execute(words, values)
            self._writes += 1
            if self._writes % _TRIM_EVERY == 0:
                self._trim()
        except (sqlite3.OperationalError, OSError, ConfigError) as problem:
            log.warning("%s cannot be written: %s", self.path, problem)
            return False
        return True

    def _trim(self) -> None:
        for table, limit in _LIMITS.items():
            # The names are ours.
            self.open().execute(
                f"DELETE FROM {table} WHERE at <= (SELECT at FROM {table}"  # noqa: S608
                f" ORDER BY at DESC LIMIT 1 OFFSET {limit})"
            )

    # Positions

    def since(self, now: int) -> int:
        """Return from which snowflake on the bot is served: that of the first start."""
        self._write("INSERT OR IGNORE INTO fact VALUES ('since', ?)", now)
        found = self.open().execute("SELECT value FROM fact WHERE name = 'since'").fetchone()
        return int(found[0]) if found else now

    def position(self, channel: int) -> int | None:
        words = "SELECT message FROM position WHERE channel = ?"
        found = self.open().execute(words, (channel,)).fetchone()
        return int(found[0]) if found else None

    def is_direct(self, channel: int) -> bool:
        words = "SELECT is_direct FROM position WHERE channel = ?"
        found = self.open().execute(words, (channel,)).fetchone()
        return bool(found and found[0])

    def positions(self) -> dict[int, Position]:
        rows = self.open().execute("SELECT channel, message, is_direct FROM position")
        return {channel: Position(message, bool(direct)) for channel, message, direct in rows}

    def advance(self, channel: int, message: int, *, is_direct: bool) -> None:
        self._write(
            "INSERT INTO position VALUES (?, ?, ?, ?) ON CONFLICT (channel) DO UPDATE SET"
            " message = max(message, excluded.message), at = excluded.at",
            *(channel, message, is_direct, time.time()),
        )

    # What we have posted

    def note_own(self, nonce: str, message: int) -> None:
        self._write("INSERT OR REPLACE INTO own VALUES (?, ?, ?)", nonce, message, time.time())

    def own(self, nonce: str) -> int | None:
        """Return the message that was posted with a nonce."""
        found = self.open().execute("SELECT message FROM own WHERE nonce = ?", (nonce,)).fetchone()
        return int(found[0]) if found else None

    def is_own(self, message: int) -> bool:
        """Return whether we know as what a message was posted."""
        words = "SELECT 1 FROM own WHERE message = ?"
        return self.open().execute(words, (message,)).fetchone() is not None

    # Questions

    def ask(self, digest: str, question: Question) -> None:
        """Record an open question; raise Refuse if that is not possible."""
        body = msgspec.json.encode(question)
        words = "INSERT OR REPLACE INTO question VALUES (?, ?, ?, 1, ?, ?)"
        if not self._write(words, digest, question.chat_id, question.turn, body, time.time()):
            raise Refuse("the question cannot be recorded")

    def open_question(self, digest: str) -> Question | None:
        words = "SELECT body FROM question WHERE id = ? AND is_open"
        found = self.open().execute(words, (digest,)).fetchone()
        return msgspec.json.decode(found[0], type=Question) if found else None

    def close_question(self, digest: str) -> None:
        self._write("UPDATE question SET is_open = 0 WHERE id = ?", digest)

    def close_questions(self, chat_id: str, turn: str = "") -> None:
        """Close what is asked in a chat, or only by one turn."""
        words = "UPDATE question SET is_open = 0 WHERE is_open AND chat = ?"
        if turn:
            self._write(f"{words} AND turn = ?", chat_id, turn)
        else:
            self._write(words, chat_id)
