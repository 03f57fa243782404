"""Addresses with a meaning in the Bub protocol: those of chats and of their events.

A chat's own address gets only what every peer understands: `tg_reply` and `spawn_result`. Events
of its turns go to `events:` and that address, for bridges that subscribe to it.
"""

from __future__ import annotations

from msgspec import Raw

from busd.vocabulary.payload import author_of

EVENTS_PREFIX = "events:"
_PREFIXES = {"telegram": "tg"}  # a channel whose addresses do not begin with its own name
_CHANNELS = {prefix: channel for channel, prefix in _PREFIXES.items()}


def event_address(address: str) -> str:
    """Return the address for events of a chat, or of any other address that an agent talks to."""
    return f"{EVENTS_PREFIX}{address}"


def prefix_of(channel: str) -> str:
    """Return the prefix of a channel's addresses."""
    return _PREFIXES.get(channel, channel)


def channel_of(prefix: str) -> str:
    """Return the channel whose addresses have this prefix."""
    return _CHANNELS.get(prefix, prefix)


def chat_address(channel: str, chat_id: str) -> str:
    """Return the address of a chat; `tg` is another name of the channel `telegram`."""
    return f"{prefix_of(channel)}:{chat_id}"


def speaker_of(sender: str, raw: Raw, channel: object, chat_id: object) -> str:
    """Return the author of a message or, if that is a bridge, the chat in its content.

    `channel` and `chat_id` come from the content. Only a bridge, whose address has no prefix, can
    send for a chat in this way.
    """
    if ":" not in sender and channel and chat_id:
        return chat_address(str(channel), str(chat_id))
    return author_of(sender, raw)
