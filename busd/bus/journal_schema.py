"""The shape of the activity log: its tables and its views.

Anybody may read the view `activity_log`; the rest is ours.
"""

from __future__ import annotations

SCHEMA_VERSION = 2
APPLICATION_ID = 0x62757364  # "busd": tells our file from somebody else's

# The log is written in sections of some thousand deliveries. Each has a list of its own of who
# sent where to whom (`way`), so a row names that by one small number, and a stretch of its own of
# the index by message id, which `journal_rows` fills in the order of the ids. Against one index
# over everything and three names in each row that takes 1.8 µs per delivery instead of 4.0 for the
# ids of the benchmark and 2.3 instead of 10 for random ones, and 77 bytes instead of 103.
#
# `id` is the time of writing in microseconds since 1970, moved on where it would not be unique:
# so the primary key is the index by time, grows, and never comes twice, not even after a restart.
# The three later times are microseconds after send_start: 2 or 3 bytes each instead of 8. '' is
# "none": to turn it into NULL is the reader's work, not the writer's. There are no constraints:
# one odd row must not keep its batch from being written.
#
# An entry of the index may outlive its delivery; it goes with its section.
_TABLES = """
CREATE TABLE delivery (
    id INTEGER PRIMARY KEY,
    section INTEGER,
    message_id TEXT,
    rpc_id,  -- text or a number, as the sender had it
    way INTEGER,
    is_first INTEGER,  -- of the rows of its message
    send_start INTEGER,
    process_start INTEGER,
    process_finish INTEGER,
    send_finish INTEGER,
    status TEXT,
    error TEXT,
    payload TEXT
);
CREATE INDEX delivery_in_flight ON delivery (id) WHERE status = 'in flight';
CREATE TABLE way (
    section INTEGER,
    number INTEGER,
    sender TEXT,
    to_address TEXT,
    peer TEXT,  -- '' if there is none
    PRIMARY KEY (section, number)
) WITHOUT ROWID;
CREATE TABLE by_message_id (
    section INTEGER,
    message_id TEXT,
    id INTEGER,
    PRIMARY KEY (section, message_id, id)
) WITHOUT ROWID;
"""

# What SQLite's planner is to believe, however much is in the log: that there are few sections with
# many rows each. So it looks a message id up in each section (`ANY(section) AND message_id=?`)
# instead of reading everything, and goes by the primary key for everything else.
_STATISTICS = """
ANALYZE;
DELETE FROM sqlite_stat1;
INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES
    ('delivery', NULL, '10000000'),
    ('delivery', 'delivery_in_flight', '100 1'),
    ('way', 'way', '100000 100 1'),
    ('by_message_id', 'by_message_id', '10000000 8192 1 1');
"""

# A delivery with its names. The index is joined in, though `delivery` has the message id too:
# else SQLite would not think of it.
_DELIVERIES = """
CREATE VIEW deliveries AS
SELECT delivery.id AS id, delivery.message_id AS message_id, rpc_id, sender, to_address, peer,
    is_first, send_start, process_start, process_finish, send_finish, status, error, payload
FROM delivery
JOIN way ON way.section = delivery.section AND way.number = delivery.way
JOIN by_message_id AS entry ON entry.section = delivery.section
    AND entry.message_id = delivery.message_id AND entry.id = delivery.id
"""

# An event's `id` is that of its delivery. Four times that, plus 0 to 3, would be its own, but then
# SQLite could not use the primary key: `order by id desc limit 20` would read the whole log. For
# the same reason a column has the same type in all four parts.
_EVENT = """
SELECT id, strftime('%Y-%m-%dT%H:%M:%S', (send_start + {after}) / 1000000, 'unixepoch')
        || printf('.%06dZ', (send_start + {after}) % 1000000),
    '{event}', message_id, nullif(CAST(rpc_id AS TEXT), ''), {actor}, to_address, status,
    nullif({payload}, ''), nullif({error}, '')
FROM deliveries WHERE {condition}
"""
_EVENTS = (
    # event, how long after send_start, whether at all, who, payload, error
    ("send_start", "0", "is_first", "sender", "payload", "NULL"),
    ("process_start", "process_start", "process_start NOTNULL", "peer", "NULL", "NULL"),
    ("process_finish", "process_finish", "process_finish NOTNULL", "peer", "NULL", "error"),
    ("send_finish", "send_finish", "send_finish NOTNULL", "sender", "NULL", "error"),
)
_ACTIVITY_LOG = (
    "CREATE VIEW activity_log "
    "(id, ts, event, message_id, rpc_id, actor, to_address, status, payload_json, error) AS "
) + "UNION ALL".join(
    _EVENT.format(
        event=event, after=after, condition=condition, actor=actor, payload=payload, error=error
    )
    for event, after, condition, actor, payload, error in _EVENTS
)
SCHEMA = f"""
BEGIN;
{_TABLES}{_STATISTICS}{_DELIVERIES};{_ACTIVITY_LOG};
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
