"""Chats: which one a message belongs to, which agent it has, and where its answers go.

One chat is a channel and a chat id; it has one agent, whose id follows from the two. Who may send
which type of message is here, too: the table of the Bub protocol.
"""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd import (
    EVENTS_PREFIX,
    AgentEvent,
    Refuse,
    SpawnRequest,
    TgMessage,
    channel_of,
    chat_address,
    prefix_of,
    read_message,
)

_NO_CHANNELS = ("agent", "system", "plugin", "events")  # prefixes of addresses that are no chats
_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_MAX_ADDRESS = 255
_MAX_CHAT_ADDRESS = _MAX_ADDRESS - len(EVENTS_PREFIX)  # its events need an address, too
_SHOWN = 40  # characters of a bad name that an answer repeats
# Who may send what, in policy `strict`.
_ANYBODY = frozenset({"general_response"})
# `agent_event`: a user stops a turn by one (`turn.cancel`).
_BRIDGE = _ANYBODY | {"spawn_request", "configure", "tg_message", "agent_event"}
_SYSTEM = _ANYBODY | {"spawn_result", "route_assigned", "agent_event"}
_AGENT = _ANYBODY | {"tg_reply", "agent_event"}
_KNOWN = _BRIDGE | _SYSTEM | _AGENT


class Chat(msgspec.Struct, frozen=True):
    """A conversation; same channel and chat id, same chat."""

    channel: str
    chat_id: str

    @property
    def agent_id(self) -> str:
        """The client id of its one agent."""
        digest = sha256(f"{self.channel}:{self.chat_id}".encode("utf-8", "surrogatepass"))
        return f"agent:worker-{digest.hexdigest()[:12]}"

    @property
    def address(self) -> str:
        """The default address for answers."""
        return chat_address(self.channel, self.chat_id)


class CancelledChat(msgspec.Struct):
    """The data of a `turn.cancel`: which chat, as in a `tg_message`; the turn is the agent's."""

    channel: str | UnsetType = UNSET
    chat_id: str | int | UnsetType = UNSET


class Placed(msgspec.Struct, frozen=True):
    """A chat, the type of its channel, and where its answers go."""

    chat: Chat
    channel_type: str
    talkto: str


def requested_chat(request: SpawnRequest, channel_types: list[str]) -> Placed:
    """Return the chat that a `spawn_request` is for; raise Refuse saying what is wrong with it."""
    chat = checked_chat(request.channel, str(request.chat_id))
    channel_type = channel_of(request.channel_type)
    check_channel_type(channel_type, channel_types)
    return Placed(chat, channel_type, chat.address)


def chat_of_message(
    message: TgMessage | CancelledChat, author: str, sender: str, channel_types: list[str]
) -> Placed:
    """Return the chat of a message that is not addressed to an agent; raise Refuse without one.

    It follows from the address of the author or, if that is a bridge, from the content. An address
    outside the content's channel is used as a whole, so that chats of two channels are never
    confused.
    """
    address = author if ":" in author else ""
    prefix, _, rest = address.partition(":")
    channel = channel_of(message.channel or "") or channel_of(prefix)
    if message.chat_id and ":" not in sender:
        chat = checked_chat(channel, str(message.chat_id))
        talkto = chat.address
    elif address:
        chat = checked_chat(channel, rest if channel_of(prefix) == channel else address)
        talkto = address
    else:
        raise Refuse(f"no chat_id, and {author} is not the address of a chat")
    check_channel_type(channel, channel_types)
    return Placed(chat, channel, talkto)


def chat_of_address(address: str) -> Chat:
    """Return the chat that an address is of; raise Refuse if it is of none."""
    prefix, colon, rest = address.partition(":")
    if not colon:
        raise Refuse(f"{address} is not the address of a chat")
    return checked_chat(channel_of(prefix), rest)


def checked_chat(channel: str, chat_id: str) -> Chat:
    """Return a chat; raise Refuse for what can name none."""
    channel = channel_of(channel)
    if not _CHANNEL.fullmatch(channel):
        raise Refuse(
            f"channel {_shown(channel)} cannot be: "
            "it has 1 to 32 letters, digits and _ . - and begins with a letter or digit"
        )
    if channel in _NO_CHANNELS:
        raise Refuse(f"channel {channel} cannot be: {channel}: is no address of a chat")
    if problem := _problem_of(chat_id, _MAX_CHAT_ADDRESS - len(prefix_of(channel)) - 1):
        raise Refuse(f"chat_id {_shown(chat_id)} cannot be: {problem}")
    return Chat(channel, chat_id)


def check_channel_type(channel_type: str, known: list[str]) -> None:
    """Raise Refuse unless the operator knows this type of channel."""
    if channel_type not in known:
        raise Refuse(
            f"unknown channel_type {_shown(channel_type)}: this bus has {', '.join(known)}"
            " (setting agents.channel_types)"
        )


def check_address(address: str) -> None:
    """Raise Refuse unless something could be sent to an address."""
    if problem := _problem_of(address, _MAX_ADDRESS):
        raise Refuse(f"{_shown(address)} cannot be an address: {problem}")


def _problem_of(text: str, room: int) -> str:
    """Return why an address could not have this in it, or "" if it could."""
    if not text:
        return "it is empty"
    if len(text) > room:
        return f"it has {len(text)} characters, and {room} are the most"
    if not text.isprintable() or any(sign in text for sign in " *?"):
        return "it has spaces, unprintable characters, * or ?"
    return ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def refusal_of(sender: str, type_name: str) -> str | None:
    """Return why a sender may not send a type; None if it may, or if the type is none of ours."""
    if type_name not in _KNOWN:
        return None
    kind, allowed = _kind_of(sender)
    if type_name in allowed:
        return None
    return f"{kind} like {sender} may not send {type_name}, only {', '.join(sorted(allowed))}"


def speakers_of(sender: str, type_name: str, payload: Raw) -> list[str]:
    """Return the chat in the content of a bridge's message, which is processed as that chat's."""
    if ":" in sender:
        return []  # it sends for itself, regardless of the content
    try:
        if type_name == "tg_message":
            said: TgMessage | CancelledChat = read_message(payload, TgMessage)
        elif type_name == "agent_event":
            said = read_message(payload, AgentEvent).read(CancelledChat)
        else:
            return []
    except Refuse:
        return []  # the addressee refuses it
    if not (said.channel and said.chat_id):
        return []
    return [chat_address(channel_of(said.channel), str(said.chat_id))]


def _kind_of(sender: str) -> tuple[str, frozenset[str]]:
    if sender == "agent:system" or sender.startswith("system:"):
        return "the system", _SYSTEM
    if sender.startswith("agent:"):
        return "an agent", _AGENT
    return "a bridge", _BRIDGE
