"""Pace: how fast a bridge posts, how long it waits in place, and what is too much."""

from __future__ import annotations

import msgspec


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the other system, and the patience of the bridge."""

    per_chat_seconds: float = 0.0  # between two posts to one chat
    total_per_second: float = 0.0  # posts and shows to all chats; 0: no limit
    show_seconds: float = 1.0  # between two shows of one chat
    refresh_seconds: float = 4.0  # a working turn is shown again, for "typing…"; 0: it is not
    patience_seconds: float = 60.0  # a reply that is refused for now is tried again in place
    post_seconds: float = 60.0  # then a post is cancelled, and its outcome is unknown
    stop_seconds: float = 5.0  # for posts under way when the bridge is stopped
    parallel: int = 16  # chats that are posted to at the same time
    max_waiting_per_chat: int = 100  # replies; others get a failed ack, with the time to try again
    max_waiting: int = 10_000
    max_waiting_bytes: int = 64 * 1024 * 1024
