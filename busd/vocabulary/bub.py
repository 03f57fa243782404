"""The message types of the Bub protocol, with its own spelling.

Members that may be missing are UNSET and left out again when written.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.errors import Refuse
from busd.rpc.reading import Id, reader_of
from busd.vocabulary.payload import message

T = TypeVar("T")
_SHOWN_CHARACTERS = 80  # of an event's name in an error
LIFE_EVENTS = ("spawned", "ready", "exited", "restarted", "failed", "stopped")
TURN_EVENTS = ("turn.delta", "turn.step", "turn.prompt", "turn.error", "turn.cancel")


@message("spawn_request")
class SpawnRequest(msgspec.Struct):
    """Start (or find) the agent of a chat; `channel_type` defaults to `channel`."""

    chat_id: Id
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
    chat_id: Id | UnsetType = UNSET  # ours: distinguishes the answers to several requests
    request_id: Id | UnsetType = UNSET  # ours: messageId of the request


@message("tg_message")
class TgMessage(msgspec.Struct):
    """A message of a user; only `text` is required."""

    text: str
    senderId: Id | UnsetType = UNSET  # noqa: N815
    channel: str | UnsetType = UNSET
    username: str | UnsetType = UNSET
    full_name: str | UnsetType = UNSET
    # Ours, additive:
    chat_id: Id | UnsetType = UNSET  # the chat, if it does not follow from the sender's address
    attachments: list[Raw] | UnsetType = UNSET
    mentions: list[Raw] | UnsetType = UNSET
    thread_id: Id | UnsetType = UNSET
    prompt_id: Id | UnsetType = UNSET  # answers a `turn.prompt`
    metadata: Raw | UnsetType = UNSET


@message("tg_reply", beside=("reply_to_message_id", "chat_id"))
class TgReply(msgspec.Struct):
    """The agent's final reply, or a question during a turn."""

    text: str
    channel: str | UnsetType = UNSET
    reply_to_message_id: Id | UnsetType = UNSET
    chat_id: Id | UnsetType = UNSET
    prompt_id: Id | UnsetType = UNSET  # ours: the plain text of this `turn.prompt`


@message("general_response")
class GeneralResponse(msgspec.Struct):
    """An acknowledgement and nothing more."""

    status: Literal["ok", "error"]
    message: str | UnsetType = UNSET
    request_id: Id | UnsetType = UNSET
    error_code: str | UnsetType = UNSET


@message("configure")
class Configure(msgspec.Struct):
    """Change `talkto` or named settings of a running agent; missing members stay unchanged."""

    talkto: str | UnsetType = UNSET
    settings: dict[str, Any] | UnsetType = UNSET  # ours: named session settings


@message("route_assigned")
class RouteAssigned(msgspec.Struct):
    """The agent of a chat."""

    chat_id: Id
    agent_id: str


@message("agent_event")
class AgentEvent(msgspec.Struct):
    """An event of an agent or of one of its turns."""

    event: str
    data: Raw = Raw(b"{}")

    def read(self, kind: type[T]) -> T:
        """Return the data as `kind`; raise Refuse with the name of an invalid member."""
        try:
            return reader_of(kind).decode(self.data)
        except (msgspec.MsgspecError, RecursionError) as problem:
            where = f"agent_event {self.event[:_SHOWN_CHARACTERS]}: content.data"
            raise Refuse(f"{where}: {problem}") from None


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
