"""Sessions: the stored state of each chat's agent, in an SQLite file that persists over restarts.

All of it is in memory, too, where the loop reads it. A requested change is written before it is
confirmed (`save`); other changes take effect at once and are written soon (`note`, `flush`).
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
import msgspec
import structlog

from busd import BusdError
from busd.database import DatabaseFile, Layout, is_damage

log = structlog.get_logger()

FILE = "agents.db"
Status = Literal["spawning", "running", "stopped", "failed"]
FORMAT_VERSION = "1.0"  # of the reference's sessions.json
_LAYOUT = Layout(
    contents="sessions",
    tables="CREATE TABLE session (client_id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID",
    is_synced=False,
)
_SAVE = "INSERT OR REPLACE INTO session (client_id, record) VALUES (?, ?)"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One chat's agent; the members are those of the reference's sessions.json."""

    client_id: str
    chat_id: str
    channel: str
    channel_type: str
    talkto: str
    workspace: str
    systemd_unit: str = ""  # by which a spawner finds it again
    status: Status = "spawning"
    created_at: str = ""
    last_activity: str = ""
    stopped_at: str | None = None
    spawner: str = ""  # ours: who started it
    log: str = ""  # ours: where its worker prints to
    settings: dict[str, Any] = {}  # ours: those that `configure` set
    table: str = ""  # ours: the fingerprint of the settings that its worker was started with
    is_interrupted: bool = False  # ours: its worker ended with the bus, maybe in mid-turn


class NoSessions(Exception):
    """The sessions cannot be read or written; the text is for whoever asked."""


class Sessions:
    """The records, by client id."""

    def __init__(self, state: Path) -> None:
        self.path = state / FILE
        self.known: dict[str, Session] = {}
        self._unwritten: set[str] = set()
        self._file: _SessionsFile | None = None
        self._writing = anyio.Lock()

    # The loop's side

    async def open(self) -> None:
        """Read what an earlier daemon left; raise NoSessions if it cannot."""
        async with self._writing:
            self.known = await self._in_thread(self._load)

    async def save(self, session: Session) -> None:
        """Store a record; raise NoSessions, without any change, if it cannot be written."""
        async with self._writing:
            await self._in_thread(self._write, [session], [])
            self.known[session.client_id] = session
            self._unwritten.discard(session.client_id)

    def note(self, session: Session) -> None:
        """Update a record in memory; `flush` writes it."""
        self.known[session.client_id] = session
        self._unwritten.add(session.client_id)

    def forget(self, client_id: str) -> None:
        """Drop a record; `flush` deletes it."""
        self.known.pop(client_id, None)
        self._unwritten.add(client_id)

    async def flush(self) -> None:
        """Write what was noted; raise NoSessions, and all of it is written the next time."""
        async with self._writing:
            due, self._unwritten = self._unwritten, set()
            if not due:
                return
            kept = [self.known[each] for each in due if each in self.known]
            gone = [each for each in due if each not in self.known]
            try:
                await self._in_thread(self._write, kept, gone)
            except NoSessions:
                self._unwritten |= due
                raise

    async def close(self) -> None:
        """Write the rest and let go of the file."""
        try:
            await self.flush()
        finally:
            async with self._writing:
                await anyio.to_thread.run_sync(self._close)

    # The thread's side

    async def _in_thread(self, do: Any, *args: Any) -> Any:
        # Any: whatever `do` takes and gives
        try:
            return await anyio.to_thread.run_sync(self._on_whole_file, do, *args)
        except (sqlite3.Error, OSError, BusdError) as problem:
            raise NoSessions(f"sessions cannot be kept: {problem} ({self.path.name})") from None

    def _on_whole_file(self, do: Any, *args: Any) -> Any:
        """Do something with the file; if it is damaged, with a new one that has all we know."""
        try:
            return do(*args)
        except sqlite3.DatabaseError as problem:
            if self._file is None or not is_damage(problem):
                raise
            self._file.move_aside(str(problem))
        self._write(list(self.known.values()), [])
        return do(*args)

    def _load(self) -> dict[str, Session]:
        rows = self._open().execute("SELECT client_id, record FROM session")
        found = (_session_of(client_id, text) for client_id, text in rows)
        return {session.client_id: session for session in found if session is not None}

    def _write(self, kept: list[Session], gone: list[str]) -> None:
        self._open()
        assert self._file is not None
        with self._file.transaction() as db:
            db.executemany(_SAVE, [(each.client_id, _text(each)) for each in kept])
            db.executemany("DELETE FROM session WHERE client_id = ?", [(each,) for each in gone])

    def _open(self) -> sqlite3.Connection:
        if self._file is None:
            self._file = _SessionsFile(self.path, _LAYOUT)
            self._file.check()
        return self._file.open()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()


class _SessionsFile(DatabaseFile):
    def on_moved(self, aside: str, problem: str) -> None:
        log.warning("sessions.moved_aside", path=str(self.path), to=aside, problem=problem)


def _session_of(client_id: str, text: str | bytes) -> Session | None:
    """Parse a record; an unreadable one, or one of a later busd, does not affect the others."""
    try:
        return msgspec.json.decode(text, type=Session)
    except (msgspec.MsgspecError, RecursionError) as problem:
        log.warning("session.left_out", agent=str(client_id)[:80], reason=str(problem))
        return None


def _text(session: Session) -> str:
    return msgspec.json.encode(session).decode()


def is_older(moment: str | None, days: float) -> bool:
    """True if a record's time is more than so many days ago."""
    if not moment:
        return False
    return datetime.now(UTC) - datetime.fromisoformat(moment) > timedelta(days=days)
