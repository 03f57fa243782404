"""The message types of the Bub protocol, with its own spelling.

Members that may be missing are UNSET and left out again when written.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.vocabulary.payload import message

LIFE_EVENTS = ("spawned", "ready", "exited", "restarted", "failed", "stopped")
TURN_EVENTS = ("turn.delta", "turn.step", "turn.prompt", "turn.error", "turn.cancel")


@message("spawn_request")
class SpawnRequest(msgspec.Struct):
    """Start (or find) the agent of a chat; `channel_type` defaults to `channel`."""

    chat_id: str
    channel: str
    channel_type: str = ""

    def __post_init__(self) -> None:
        self.channel_type = self.channel_type or self.channel


@message("spawn_result")
class SpawnResult(msgspec.Struct):
    """How a `spawn_request` ended."""

    success: bool
    client_id: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    chat_id: str | UnsetType = UNSET  # ours: tells apart the answers to several requests
    request_id: str | UnsetType = UNSET  # ours: messageId of the request


@message("tg_message")
class TgMessage(msgspec.Struct):
    """A user's words; `text` alone is enough."""

    text: str
    senderId: str | UnsetType = UNSET  # noqa: N815
    channel: str | UnsetType = UNSET
    username: str | UnsetType = UNSET
    full_name: str | UnsetType = UNSET
    # Ours, additive:
    chat_id: str | UnsetType = UNSET  # which chat, where the sender's address does not say it
    attachments: list[Raw] | UnsetType = UNSET
    mentions: list[Raw] | UnsetType = UNSET
    thread_id: str | UnsetType = UNSET
    prompt_id: str | UnsetType = UNSET  # answers a `turn.prompt`
    metadata: Raw | UnsetType = UNSET


@message("tg_reply", beside=("reply_to_message_id", "chat_id"))
class TgReply(msgspec.Struct):
    """The agent's final words, or a question of its own in the middle of a turn."""

    text: str
    channel: str | UnsetType = UNSET
    reply_to_message_id: str | UnsetType = UNSET
    chat_id: str | UnsetType = UNSET
    prompt_id: str | UnsetType = UNSET  # ours: the plain text of this `turn.prompt`


@message("general_response")
class GeneralResponse(msgspec.Struct):
    """An acknowledgement and nothing more."""

    status: Literal["ok", "error"]
    message: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


@message("configure")
class Configure(msgspec.Struct):
    """Change `talkto`, or named settings, of a live agent; what is missing stays as it is."""

    talkto: str | UnsetType = UNSET
    settings: dict[str, Any] | UnsetType = UNSET  # ours: named session settings


@message("route_assigned")
class RouteAssigned(msgspec.Struct):
    """Which agent a chat has."""

    chat_id: str
    agent_id: str


@message("agent_event")
class AgentEvent(msgspec.Struct):
    """Something about an agent's life, or about a turn it is at."""

    event: str
    data: Raw = Raw(b"{}")


BUB_TYPES: tuple[type[msgspec.Struct], ...] = (
    SpawnRequest,
    SpawnResult,
    TgMessage,
    TgReply,
    GeneralResponse,
    Configure,
    RouteAssigned,
    AgentEvent,
)
