"""What agents have yet to do in a conversation: open turns and prompts; and how they ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from busd.gateway.conversation import Prompt
from busd.gateway.schema import ROW_BYTES
from busd.gateway.store_conversations import StoreConversations
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_space import StoreSpace
from busd.gateway.stored import MAX_CLOSED_PROMPTS, MAX_ENDED_TURNS, OpenPrompt, OpenTurn, StoreFull
from busd.gateway.stored_json import decoder_of, encode

_decode_turn = decoder_of(OpenTurn)
_decode_prompt = decoder_of(OpenPrompt)

_PUT_TURN = """
INSERT INTO turn VALUES (NULL, ?, ?, ?, NULL, ?, ?)
ON CONFLICT DO UPDATE SET how = NULL, size = excluded.size, body = excluded.body
"""
_END_TURN = f"""
UPDATE turn SET id = (SELECT max(id) + 1 FROM turn), how = ?, size = {ROW_BYTES}, body = NULL
WHERE conversation = ? AND turn = ? AND slot = ? AND how IS NULL
"""  # noqa: S608 - the part is a constant
_FORGET_TURNS = """
DELETE FROM turn WHERE conversation = :this AND how IS NOT NULL AND id <= (
    SELECT id FROM turn WHERE conversation = :this AND how IS NOT NULL
    ORDER BY id DESC LIMIT 1 OFFSET :count
)
"""
_HOW_ENDED = """
SELECT slot, how FROM turn WHERE conversation = ? AND turn = ? AND how IS NOT NULL ORDER BY slot
"""
# A prompt of another turn stays as it is.
_PUT_PROMPT = """
INSERT INTO prompt VALUES (NULL, :conversation, :prompt, :turn, :slot, TRUE, :size, :body)
ON CONFLICT DO UPDATE SET is_open = TRUE, size = :size, body = :body
WHERE (is_open OR :reopens) AND turn = :turn AND slot = :slot
"""
_OPEN_PROMPTS = "SELECT body FROM prompt WHERE conversation = ? AND is_open"
_CLOSE_PROMPT = f"""
UPDATE prompt
SET id = (SELECT max(id) + 1 FROM prompt), is_open = FALSE, size = {ROW_BYTES}, body = NULL
WHERE conversation = ? AND prompt_id = ?
"""  # noqa: S608 - the part is a constant
_FORGET_PROMPTS = """
DELETE FROM prompt WHERE conversation = :this AND NOT is_open AND id <= (
    SELECT id FROM prompt WHERE conversation = :this AND NOT is_open
    ORDER BY id DESC LIMIT 1 OFFSET :count
)
"""


class StoreTurns:
    """The turns and prompts of all conversations, within the caller's transaction."""

    def __init__(
        self,
        db: sqlite3.Connection,
        limits: StoreLimits,
        clock: Callable[[], float],
        conversations: StoreConversations,
        space: StoreSpace,
    ) -> None:
        self._db, self._limits, self._clock = db, limits, clock
        self._conversations, self._space = conversations, space

    # Turns

    def put_turn(self, session_id: str, turn: OpenTurn) -> None:
        row_id = self._conversations.row_id(session_id)
        turn.began = turn.began or self._clock()
        turn.last_sign = turn.last_sign or turn.began
        body = encode(turn)
        values = (row_id, turn.turn.id, turn.slot, ROW_BYTES + len(body), body)
        self._db.execute(_PUT_TURN, values)
        if self._count("turn", row_id, "AND how IS NULL") > self._limits.open_turns:
            raise StoreFull("open_turns", self._limits.open_turns)
        self._space.fit(row_id)

    def turns(self, session_id: str) -> list[OpenTurn]:
        query = "SELECT body FROM turn WHERE conversation = ? AND how IS NULL ORDER BY id"
        rows = self._db.execute(query, (self._conversations.row_id(session_id),))
        return [_decode_turn(body) for (body,) in rows]

    def end_turn(self, session_id: str, turn_id: str, slot: int, how: str) -> list[Prompt] | None:
        row_id = self._conversations.row_id(session_id)
        if not self._db.execute(_END_TURN, (how, row_id, turn_id, slot)).rowcount:
            return None
        self._db.execute(_FORGET_TURNS, {"this": row_id, "count": MAX_ENDED_TURNS})
        query = f"{_OPEN_PROMPTS} AND turn = ? AND slot = ? ORDER BY id"
        rows = self._db.execute(query, (row_id, turn_id, slot)).fetchall()
        prompts = [_decode_prompt(body).prompt for (body,) in rows]
        for prompt in prompts:
            self._close_prompt(row_id, prompt.id)
        return prompts

    def how_ended(self, session_id: str, turn_id: str, slot: int | None) -> list[tuple[int, str]]:
        row_id = self._conversations.row_id(session_id)
        found = self._db.execute(_HOW_ENDED, (row_id, turn_id)).fetchall()
        return [each for each in found if slot in (None, each[0])]

    # Prompts

    def put_prompt(self, session_id: str, prompt: OpenPrompt, reopens: bool) -> bool:
        row_id = self._conversations.row_id(session_id)
        body = encode(prompt)
        values = {
            "conversation": row_id,
            "prompt": prompt.prompt.id,
            "turn": prompt.prompt.turn,
            "slot": prompt.slot,
            "size": ROW_BYTES + len(body),
            "body": body,
            "reopens": reopens,
        }
        if not self._db.execute(_PUT_PROMPT, values).rowcount:
            return False
        if self._count("prompt", row_id, "AND is_open") > self._limits.open_prompts:
            raise StoreFull("open_prompts", self._limits.open_prompts)
        self._space.fit(row_id)
        return True

    def prompts(self, session_id: str) -> list[OpenPrompt]:
        row_id = self._conversations.row_id(session_id)
        rows = self._db.execute(f"{_OPEN_PROMPTS} ORDER BY id", (row_id,))
        return [_decode_prompt(body) for (body,) in rows]

    def close_prompt(self, session_id: str, prompt_id: str) -> OpenPrompt | None:
        row_id = self._conversations.row_id(session_id)
        query = f"{_OPEN_PROMPTS} AND prompt_id = ?"
        row = self._db.execute(query, (row_id, prompt_id)).fetchone()
        if not row:
            return None
        self._close_prompt(row_id, prompt_id)
        return _decode_prompt(row[0])

    def _close_prompt(self, row_id: int, prompt_id: str) -> None:
        self._db.execute(_CLOSE_PROMPT, (row_id, prompt_id))
        self._db.execute(_FORGET_PROMPTS, {"this": row_id, "count": MAX_CLOSED_PROMPTS})

    def knows_prompt(self, session_id: str, prompt_id: str) -> bool:
        query = "SELECT 1 FROM prompt WHERE conversation = ? AND prompt_id = ?"
        values = (self._conversations.row_id(session_id), prompt_id)
        return bool(self._db.execute(query, values).fetchone())

    def _count(self, table: str, row_id: int, condition: str = "") -> int:
        query = f"SELECT count(*) FROM {table} WHERE conversation = ? {condition}"  # noqa: S608
        count: int = self._db.execute(query, (row_id,)).fetchone()[0]
        return count
