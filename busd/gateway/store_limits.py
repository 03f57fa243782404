"""What the gateway keeps at most: the table `[gateway.store]`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from busd.quantities import Bytes, Count, Days, about


class StoreLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of the conversations that are kept."""

    keep_days: Annotated[
        Days, about("How long entries are kept, and conversations after their last use.")
    ] = 90.0
    total_bytes: Annotated[Bytes, about("Size of all conversations together.")] = 2 * 1024**3
    conversations_per_user: Annotated[
        Count, about("Conversations of one user; beyond that the least recently used are deleted.")
    ] = 10_000
    entries: Annotated[
        Count, about("Entries per conversation; the oldest are deleted beyond that.")
    ] = 10_000
    conversation_bytes: Annotated[
        Bytes, about("Size of one conversation; the oldest entries are deleted beyond that.")
    ] = 64 * 1024**2
    members: Annotated[Count, about("Maximum number of members of a room.")] = 10_000
    tasks: Annotated[Count, about("Tasks, polls, decisions and handoffs per conversation.")] = 1_000
    open_turns: Annotated[Count, about("Turns that run in one conversation at a time.")] = 64
    open_prompts: Annotated[Count, about("Open prompts per conversation.")] = 64
    outbox: Annotated[
        Count, about("Messages of one conversation that the bus has not accepted yet.")
    ] = 1_000
    waiting: Annotated[
        Count, about("Operations that may wait for the disk; beyond that clients are refused.")
    ] = 10_000
