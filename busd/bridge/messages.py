"""What a bridge handles: messages of users (`Inbound`), replies of agents, and their parts."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.rpc.reading import Id
from busd.vocabulary.payload import message
from busd.vocabulary.turn_events import Attachment


class Inbound(msgspec.Struct, kw_only=True, frozen=True):
    """A message of a user of the other system, to be pushed to the bus."""

    chat_id: str  # of the other system; the chat's address on the bus is PREFIX:CHAT_ID
    text: str
    sender_id: str
    # What is the same whenever the other system delivers this message again, and differs for any
    # other message of the chat: the bus accepts each one once. An edit needs an id of its own.
    external_id: str
    message_id: str = ""  # by which replies and events refer to it; "": the external id
    username: str = ""
    full_name: str = ""
    attachments: tuple[Attachment, ...] = ()
    thread_id: str = ""
    prompt_id: str = ""  # of the prompt that it answers
    metadata: dict[str, Any] = {}  # any JSON object

    @property
    def turn(self) -> str:
        """The id of the turn that it begins."""
        return self.message_id or self.external_id


class Reply(msgspec.Struct, kw_only=True, frozen=True):
    """A `tg_reply` for a chat of the bridge."""

    chat_id: str
    text: str
    sender: str  # the address of the agent
    message_id: str  # the payload's own id, else the bus's
    reply_to: str = ""  # the turn: the message id of the `Inbound` that it answers
    prompt_id: str = ""  # it is the plain text of this prompt
    thread_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    metadata: Raw | UnsetType = UNSET
    is_redelivery: bool = False

    @property
    def origin(self) -> str:
        """What is the same for each delivery of one reply, and differs for any other."""
        return " ".join(self.key)

    @property
    def key(self) -> tuple[str, str, str]:
        """The words that identify it: an agent may choose the same id in another turn."""
        return self.sender, self.message_id, self.reply_to

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.text) + sum(len(each.data) for each in self.attachments) + 1_000


class Part(msgspec.Struct):
    """One message of the other system: a reply, or the n-th part of a long one.

    A function under `@bridge.splits` sets `text` and, if it likes, `extra`; the kit sets the rest.
    """

    text: str
    extra: Any = None  # whatever the bridge needs for posting it, for instance entities
    number: int = 1
    total: int = 1
    reply: Reply = Reply(chat_id="", text="", sender="", message_id="")
    # It may have been posted before: the process was killed, or did not learn the outcome.
    is_repeat: bool = False
    # The external id of a message that shows the streamed answer; edit that one into this part.
    draft: str = ""

    @property
    def chat_id(self) -> str:
        return self.reply.chat_id

    @property
    def nonce(self) -> str:
        """Return an id that is the same whenever this part is posted: 24 hexadecimal digits."""
        from hashlib import sha256

        return sha256(f"{self.reply.origin} {self.number}".encode()).hexdigest()[:24]


class ChatEvent(msgspec.Struct, kw_only=True, frozen=True):
    """An `agent_event` for a chat that belongs to no turn, for instance `task.updated`."""

    chat_id: str
    name: str
    sender: str
    data: Raw


@message("tg_reply", beside=("reply_to_message_id", "chat_id"))
class SpokenReply(msgspec.Struct):
    """The content of a `tg_reply`, with all that an agent may add to it."""

    text: str
    reply_to_message_id: Id | None = None
    prompt_id: Id | None = None
    thread_id: Id | None = None
    attachments: tuple[Attachment, ...] = ()
    metadata: Raw | UnsetType = UNSET
