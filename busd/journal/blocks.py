"""The format of the activity log: blocks of deliveries, and the view that expands them.

Other programs may read the view `activity_log`; the table is private to busd.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from busd.bus.record import Record
from busd.database import Layout
from busd.rpc.envelope import encode

# A block is encoded in one go, which takes the interpreter lock for about 0.2 ms, and is deleted
# as a whole.
BLOCK_RECORDS = 512
BLOCK_BYTES = 256 * 1024
# What `encode` raises for a value that JSON cannot hold, such as text that is not Unicode.
UNENCODABLE = (TypeError, ValueError, OverflowError)

# One row per block of deliveries: a JSON array of `Record`s, each an array of its fields. An
# indexed row per delivery took about twice as much CPU for the log.
#
# A delivery's id is its block's id plus its position. Ids are the time of writing in microseconds
# since 1970, moved on where they would not be unique: so the primary key is the index by time, and
# ids increase even over a restart. `wall_offset` plus a time in the block is the time of day.
#
# Each delivery in flight is a block of its own, deleted when the delivery ends.
_TABLE = """
CREATE TABLE block (
    id INTEGER PRIMARY KEY,
    last_id INTEGER,
    wall_offset REAL,
    is_in_flight INTEGER,
    deliveries TEXT
);
CREATE INDEX block_in_flight ON block (id) WHERE is_in_flight;
"""

# The view's `id` is that of the block. The delivery's own would be an expression, by which SQLite
# can neither search nor sort: `order by id desc limit 20` would unfold the whole log.
_VIEW = """
CREATE VIEW activity_log
    (id, ts, event, message_id, rpc_id, actor, to_address, status, payload_json, error) AS
SELECT id,
    strftime('%Y-%m-%dT%H:%M:%S', microseconds / 1000000, 'unixepoch')
        || printf('.%06dZ', microseconds % 1000000),
    event, message_id, rpc_id, actor, to_address, status, payload, error
FROM (
    SELECT block.id AS id,
        CAST((wall_offset + CASE WHEN event.key < 2 THEN delivery.value ->> {started}
            ELSE delivery.value ->> {ended} END) * 1e6 + 0.5 AS INTEGER) AS microseconds,
        event.value AS event,
        delivery.value ->> {message_id} AS message_id,
        CASE json_type(delivery.value, '$[{rpc_id}]') WHEN 'text' THEN delivery.value ->> {rpc_id}
            ELSE nullif(delivery.value -> {rpc_id}, 'null') END AS rpc_id,
        CASE WHEN event.key IN (0, 3) THEN delivery.value ->> {sender}
            ELSE delivery.value ->> {peer} END AS actor,
        delivery.value ->> {to} AS to_address,
        delivery.value ->> {status} AS status,
        CASE event.key WHEN 0 THEN nullif(delivery.value ->> {payload}, '') END AS payload,
        CASE WHEN event.key > 1 THEN nullif(delivery.value ->> {error}, '') END AS error
    FROM block
    CROSS JOIN json_each(block.deliveries) AS delivery
    CROSS JOIN
        json_each('["send_start","process_start","process_finish","send_finish"]') AS event
    WHERE CASE event.key
        WHEN 0 THEN delivery.value ->> {is_first}
        WHEN 1 THEN delivery.value ->> {peer} <> ''
        WHEN 2 THEN delivery.value ->> {peer} <> '' AND delivery.value ->> {ended} NOTNULL
        ELSE delivery.value ->> {is_last} AND delivery.value ->> {ended} NOTNULL END
);
"""
POSITIONS = {name: position for position, name in enumerate(Record.__struct_fields__)}
LAYOUT = Layout(
    contents="activity log",
    tables=f"{_TABLE}{_VIEW.format(**POSITIONS)}",
    application_id=0x62757364,  # "busd"
    version=3,
    is_synced=False,  # if the power fails, the last moments are lost
    can_shrink=True,
    replaces_older=True,
)


class RecordBatch(msgspec.Struct, eq=False):
    """Records that the writer receives together and writes in one transaction."""

    records: list[Record]  # of deliveries that have ended
    wall_offset: float  # the time of day minus the clock of the bus
    in_flight: list[Record]
    lost: list[tuple[int, str]]  # call and peer of deliveries that ended, but were dropped


def encode_blocks(records: list[Record]) -> Iterator[tuple[int, bytes]]:
    """Encode records in blocks of bounded size; yield the number of records and the JSON."""
    for start in range(0, len(records), BLOCK_RECORDS):
        yield from _split(records[start : start + BLOCK_RECORDS])


def _split(records: list[Record]) -> Iterator[tuple[int, bytes]]:
    block = encode(records)
    if len(block) <= BLOCK_BYTES or len(records) == 1:
        yield len(records), block
        return
    middle = len(records) // 2
    yield from _split(records[:middle])
    yield from _split(records[middle:])


def encodable(records: list[Record]) -> list[Record]:
    """Return the records that JSON can hold."""
    return [record for record in records if _is_encodable(record)]


def _is_encodable(record: Record) -> bool:
    try:
        encode(record)
    except UNENCODABLE:
        return False
    return True
