"""What the store of the gateway keeps beside entries and tasks, and why it refuses."""

from __future__ import annotations

import msgspec

from busd.errors import BusdError
from busd.gateway.conversation import Entry, Prompt, Turn

PAGE_BYTES = 8 * 1024 * 1024  # of JSON, in one answer of the store
MAX_TASK_UPDATES = 100
MAX_TASK_BYTES = 1024 * 1024
MAX_ENDED_TURNS = MAX_CLOSED_PROMPTS = 100  # remembered per conversation
MAX_AUTHORS = 16  # ids that one user speaks by in one conversation
MAX_CURSORS = 200  # clients of one conversation whose place is remembered
MAX_READ_ROWS = 20_000  # read receipts in one answer of the store


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation, as the gateway knows it."""

    session_id: str
    address: str  # on the bus
    prefix: str  # of the dialect that created it
    channel: str  # of the dialect that created it
    user: str  # who created it
    name: str  # by which clients enter it
    is_room: bool = False
    created: float = 0.0  # seconds since 1970; 0: now
    last_used: float = 0.0  # seconds since 1970; 0: now


class Kept(msgspec.Struct, frozen=True):
    """An entry as it is kept."""

    entry: Entry
    is_duplicate: bool  # one of this id or origin was kept before; nothing has changed


class Page(msgspec.Struct, frozen=True):
    """Some entries of a conversation, oldest first."""

    entries: list[Entry]
    has_more: bool  # there are earlier ones in the range that was asked for


class OpenTurn(msgspec.Struct, kw_only=True):
    """A turn that runs. `turn.id` and `slot` identify it in its conversation."""

    turn: Turn
    slot: int = 0  # the position of the agent among those that got the words
    to: str = ""  # the address that got the words
    message_id: str = ""  # of the message that has brought them there
    began: float = 0.0  # seconds since 1970; 0: now
    last_sign: float = 0.0  # of the agent; seconds since 1970; 0: now


class OpenPrompt(msgspec.Struct, kw_only=True):
    """A prompt without an answer. `prompt.id` identifies it in its conversation."""

    prompt: Prompt  # `seconds_left` is as it was put
    slot: int = 0  # of its turn
    closes: float | None = None  # seconds since 1970; None: when its turn ends


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message for the bus that the bus has not accepted yet."""

    message_id: str  # unique in its conversation
    to: str
    payload: bytes
    number: int = 0  # of the entry that it carries; 0: none
    slot: int = 0  # of the turn that it begins


class StoreTotals(msgspec.Struct, frozen=True):
    """What there is in all conversations, for metrics."""

    conversations: int
    entries: int
    bytes: int
    open_turns: int
    outbox: int


# Refusals: nothing was changed by the operation that raised one


class StoreRefusal(BusdError):
    """The store is well, but does not do this."""


class StoreFull(StoreRefusal):
    """A limit is reached, and deleting the oldest entries would not help."""

    def __init__(self, limit: str, value: int) -> None:
        super().__init__(f"the limit {limit} ({value}) is reached")
        self.limit = limit  # a member of `StoreLimits`, "authors" or "task_bytes"
        self.value = value


class UnknownConversation(StoreRefusal):
    """There is no such conversation (any more): its clients have to enter it again."""

    def __init__(self, session_id: str) -> None:
        super().__init__("this conversation is no longer stored; enter it again")
        self.session_id = session_id


class NameTaken(StoreRefusal):
    """There is a conversation of this name, session id or address already."""


class Unstorable(StoreRefusal):
    """A value is no valid JSON, is nested too deeply, or has text that is not Unicode."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this cannot be stored: {reason}")
        self.reason = reason


class StoreBusy(StoreRefusal):
    """Too many operations wait for the disk; try again later."""

    def __init__(self) -> None:
        super().__init__("too much waits to be written to the disk; try again later")


class StoreFailed(BusdError):
    """The operation could not be written, or read; nothing of it was done. Try again later.

    The text is for clients: it contains no path.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the gateway cannot use its disk now ({reason}); try again later")
        self.reason = reason
