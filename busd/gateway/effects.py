"""Effects: what a dialect asks the host for. The contract stands in `dialect`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from busd.gateway.conversation import Author, Entry, Task


class SocketFrame(msgspec.Struct, eq=False):
    """An event that a Socket.IO client sent; a WebSocket client sends text."""

    namespace: str
    event: str
    data: Any = None  # what JSON can express; None: no argument
    wants_ack: bool = False


Frame = str | SocketFrame


class Send(msgspec.Struct):
    """Send a text frame to this client; anything but text is encoded as JSON."""

    frame: Any


class Emit(msgspec.Struct):
    """Send an event to this Socket.IO client."""

    event: str
    data: Any = None
    namespace: str = ""  # "": that of the connection


class Acknowledge(msgspec.Struct):
    """Answer a Socket.IO event whose sender waits for it."""

    frame: SocketFrame
    data: Any


class Close(msgspec.Struct):
    """Close the connection after what was sent."""

    reason: str = ""
    code: int = 1000


class Authenticate(msgspec.Struct):
    """Prove who the client is. `Done` has the name as `detail`; nothing else keeps the token."""

    token: str

    def __repr__(self) -> str:
        return "<Authenticate>"  # never the token


class Enter(msgspec.Struct):
    """Enter a conversation, a new one if need be; `Entered` is shown before `Done`.

    `conversation` is the client's own name for it: another user's client may have another
    conversation by the same name. Entering it again shows `Entered` again.
    """

    conversation: str
    author: Author | None = None  # who is at this client; listed while connected
    last: int = 0  # so many entries of the past, at most 500, ...
    after: str = ""  # ... or all later than the one with this id, at most 500
    # What the client calls itself, or a part of itself. Without `last` and `after` it gets what was
    # kept since this user's client of this name was last here, at most 500 (the first time none).
    client: str = ""
    is_room: bool = False  # a name of several users, see `Invite` and the setting `gateway.rooms`
    # If given, a room is refused that somebody else has created, but for the owner: so nobody waits
    # in the room of two others.
    creators: tuple[str, ...] = ()


class Leave(msgspec.Struct):
    """Leave a conversation; the membership stays."""

    conversation: str


class Say(msgspec.Struct):
    """Keep a user's words, show them to all clients in the conversation, and tell agents.

    Each agent begins a turn. With `prompt_id` in the entry it answers that prompt instead (see
    `Answer` for several values).
    """

    conversation: str
    entry: Entry
    agents: tuple[str, ...] | None = ()  # names without `agent:`; (): the default one; None: nobody
    interrupts: bool = False  # first cancel the turns that run


class Post(msgspec.Struct):
    """Keep an entry and show it to all clients in the conversation; no agent gets it."""

    conversation: str
    entry: Entry


class Amend(msgspec.Struct):
    """Replace a kept entry of the same id, for instance one whose status has changed."""

    conversation: str
    entry: Entry


class Answer(msgspec.Struct):
    """Answer a prompt of an agent with the values of the chosen options, or with a text."""

    conversation: str
    prompt_id: str
    values: tuple[str, ...]
    entry: Entry  # the words that stand for it in the conversation


class Cancel(msgspec.Struct):
    """Cancel a turn, or all that run."""

    conversation: str
    turn: str = ""


class ChangeTask(msgspec.Struct):
    """Create or change a task of the conversation, and tell its agents.

    Members of `task` that are unset stay as they were; `data` is merged.
    """

    conversation: str
    task: Task
    action: str = "updated"  # "created", "updated" or "cancelled"
    by: Author | None = None
    # Names without `agent:`; (): the assignees that are agents, else the default one; None: nobody
    agents: tuple[str, ...] | None = ()


class ShareContext(msgspec.Struct):
    """Share data with agents, and show it to all clients in the conversation."""

    conversation: str
    context_id: str
    data: Raw
    agents: tuple[str, ...] = ()  # (): the default one
    by: Author | None = None


class Notify(msgspec.Struct):
    """Show something that is not kept to the other clients: somebody types, is there, is away."""

    conversation: str
    kind: str  # "typing", or a dialect's own
    by: Author
    data: Raw = Raw(b"{}")


class MarkRead(msgspec.Struct):
    """Record that somebody has read entries; shown to the others as `Read`."""

    conversation: str
    ids: tuple[str, ...]
    by: Author


class AskReaders(msgspec.Struct):
    """Ask who has read entries; `Readers` is shown."""

    conversation: str
    ids: tuple[str, ...]


class AskHistory(msgspec.Struct):
    """Ask for entries of the past; `History` is shown."""

    conversation: str
    before: int = 0  # the number of an entry; 0: the last ones
    last: int = 50


class Invite(msgspec.Struct):
    """Make a user a member of a room; only a member may."""

    conversation: str
    user: str


class Expel(msgspec.Struct):
    """End the membership of a user of a room: one's own, or by whoever created the room."""

    conversation: str
    user: str


Request = (
    Authenticate
    | Enter
    | Leave
    | Say
    | Post
    | Amend
    | Answer
    | Cancel
    | ChangeTask
    | ShareContext
    | MarkRead
    | AskReaders
    | AskHistory
    | Invite
    | Expel
)
Effect = Send | Emit | Acknowledge | Close | Notify | Request
Effects = Iterator[Effect]
