"""The tables of `gateway.db`, and the counts that triggers keep of them.

Every row that belongs to a conversation has a `size`. Triggers add these up: per conversation, per
user who created it, and in all. So no statement can change a table and forget the counts.
"""

# ruff: noqa: S608 (the parts of the statements are constants of this file)

from __future__ import annotations

from busd.database import Layout

ROW_BYTES = 128  # added to the text of a row: about what its other columns and indexes need

# Bodies are JSON and last: SQLite then need not read a long one to get at the rest of its row.
_TABLES = """
CREATE TABLE conversation (
    id INTEGER PRIMARY KEY,
    session_id TEXT UNIQUE,
    address TEXT UNIQUE,
    prefix TEXT,
    channel TEXT,
    user TEXT,
    name TEXT,
    is_room INTEGER,
    created REAL,
    last_used REAL,
    last_number INTEGER DEFAULT 0, -- of an entry; never given out again
    entries INTEGER DEFAULT 0,
    bytes INTEGER DEFAULT 512 -- for this row
);
CREATE UNIQUE INDEX conversation_by_name ON conversation (user, name) WHERE NOT is_room;
CREATE UNIQUE INDEX room_by_name ON conversation (name) WHERE is_room;
CREATE INDEX conversation_by_use ON conversation (last_used);
CREATE TABLE owner (user TEXT PRIMARY KEY, conversations INTEGER, bytes INTEGER) WITHOUT ROWID;
CREATE TABLE total (conversations INTEGER, entries INTEGER, bytes INTEGER);
INSERT INTO total VALUES (0, 0, 0);
CREATE TABLE member (
    conversation INTEGER,
    user TEXT,
    size INTEGER,
    PRIMARY KEY (conversation, user)
) WITHOUT ROWID;
CREATE TABLE author (
    conversation INTEGER,
    author_id TEXT,
    user TEXT,
    size INTEGER,
    PRIMARY KEY (conversation, author_id)
) WITHOUT ROWID;
CREATE INDEX author_by_user ON author (conversation, user);
CREATE TABLE cursor (
    conversation INTEGER,
    client TEXT,
    number INTEGER, -- of the last entry that it was shown
    moved_at REAL,
    size INTEGER,
    PRIMARY KEY (conversation, client)
) WITHOUT ROWID;
CREATE TABLE entry (
    id INTEGER PRIMARY KEY,
    conversation INTEGER,
    number INTEGER,
    entry_id TEXT,
    origin TEXT,
    kept_at REAL,
    size INTEGER,
    body BLOB
);
CREATE UNIQUE INDEX entry_by_number ON entry (conversation, number);
CREATE UNIQUE INDEX entry_by_id ON entry (conversation, entry_id);
CREATE UNIQUE INDEX entry_by_origin ON entry (conversation, origin) WHERE origin IS NOT NULL;
CREATE INDEX entry_by_time ON entry (kept_at);
CREATE TABLE receipt (
    conversation INTEGER,
    entry INTEGER, -- its `id`
    reader TEXT,
    at TEXT,
    size INTEGER,
    PRIMARY KEY (entry, reader)
) WITHOUT ROWID;
CREATE TABLE turn (
    id INTEGER PRIMARY KEY, -- in the order in which turns were put first, or ended
    conversation INTEGER,
    turn TEXT,
    slot INTEGER,
    how TEXT, -- it has ended; NULL: it is open
    size INTEGER,
    body BLOB, -- NULL once it has ended
    UNIQUE (conversation, turn, slot)
);
CREATE INDEX turn_open ON turn (conversation) WHERE how IS NULL;
CREATE TABLE prompt (
    id INTEGER PRIMARY KEY, -- in the order in which prompts were put first, or closed
    conversation INTEGER,
    prompt_id TEXT,
    turn TEXT,
    slot INTEGER,
    is_open INTEGER,
    size INTEGER,
    body BLOB, -- NULL once it is closed
    UNIQUE (conversation, prompt_id)
);
CREATE TABLE task (
    id INTEGER PRIMARY KEY,
    conversation INTEGER,
    task_id TEXT,
    changed_at REAL,
    has_ended INTEGER,
    size INTEGER,
    body BLOB,
    UNIQUE (conversation, task_id)
);
CREATE INDEX task_by_time ON task (changed_at);
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY,
    conversation INTEGER,
    message_id TEXT,
    target TEXT,
    number INTEGER,
    slot INTEGER,
    size INTEGER,
    payload BLOB,
    UNIQUE (conversation, message_id)
);
"""
# What belongs to conversations; read receipts belong to entries.
BELONGINGS = ("member", "author", "cursor", "entry", "turn", "prompt", "task", "outbox")


def _count(table: str) -> str:
    """Return the triggers that count a table per conversation."""
    more, fewer = (", entries = entries + 1", ", entries = entries - 1")
    if table != "entry":
        more = fewer = ""
    return f"""
CREATE TRIGGER {table}_inserted AFTER INSERT ON {table} BEGIN
    UPDATE conversation SET bytes = bytes + NEW.size{more} WHERE id = NEW.conversation;
END;
CREATE TRIGGER {table}_resized AFTER UPDATE OF size ON {table} BEGIN
    UPDATE conversation SET bytes = bytes + NEW.size - OLD.size WHERE id = NEW.conversation;
END;
CREATE TRIGGER {table}_deleted AFTER DELETE ON {table} BEGIN
    UPDATE conversation SET bytes = bytes - OLD.size{fewer} WHERE id = OLD.conversation;
END;
"""


_COUNT_ALL = """
CREATE TRIGGER conversation_inserted AFTER INSERT ON conversation BEGIN
    INSERT INTO owner VALUES (NEW.user, 1, NEW.bytes) ON CONFLICT DO UPDATE
        SET conversations = conversations + 1, bytes = bytes + NEW.bytes;
    UPDATE total SET conversations = conversations + 1, bytes = bytes + NEW.bytes;
END;
CREATE TRIGGER conversation_changed AFTER UPDATE OF bytes ON conversation BEGIN
    UPDATE owner SET bytes = bytes + NEW.bytes - OLD.bytes WHERE user = NEW.user;
    UPDATE total SET
        bytes = bytes + NEW.bytes - OLD.bytes,
        entries = entries + NEW.entries - OLD.entries;
END;
CREATE TRIGGER conversation_deleted AFTER DELETE ON conversation BEGIN
    UPDATE owner SET conversations = conversations - 1, bytes = bytes - OLD.bytes
        WHERE user = OLD.user;
    DELETE FROM owner WHERE user = OLD.user AND NOT conversations;
    UPDATE total SET conversations = conversations - 1, bytes = bytes - OLD.bytes;
END;
CREATE TRIGGER entry_forgotten AFTER DELETE ON entry BEGIN
    DELETE FROM receipt WHERE entry = OLD.id;
END;
"""
LAYOUT = Layout(
    contents="conversations",
    tables=f"{_TABLES}{''.join(map(_count, (*BELONGINGS, 'receipt')))}{_COUNT_ALL}",
    application_id=0x62757367,  # "busg"
    version=1,
    can_shrink=True,
)
