"""Events: what a dialect is shown. `conversation` is the name by which its client has entered."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from busd.gateway.conversation import Author, Entry, Prompt, PromptEnd, Step, Task, Turn, TurnEnd
from busd.gateway.effects import Request


class Done(msgspec.Struct, eq=False):
    """A request was performed."""

    request: Request
    entry: Entry | None = None  # as it was kept: with its number, id and timestamp
    is_duplicate: bool = False  # an entry with this id was kept before; nothing was done again
    detail: str = ""


class Refused(msgspec.Struct, eq=False):
    """A request was refused; nothing of it was done."""

    request: Request
    rule: str  # one of RULES
    reason: str  # for the client: what is wrong, and the next step
    retry_seconds: float | None = None
    detail: str = ""  # the member, id or value that is at fault


RULES = {
    "unauthenticated": "the client has to authenticate first",
    "authentication": "the token is unknown or was revoked",
    "author": "this user may not speak as this author",
    "conversation": "the client has not entered this conversation",
    "member": "the user is not a member of this room",
    "invalid": "a value does not fit",
    "agent": "there is no such agent, or it refused the message",
    "prompt": "there is no such open prompt in this conversation",
    "option": "the prompt has no such option",
    "limit": "a limit is reached",
    "busy": "the bus or the disk cannot take it now",
}


class Entered(msgspec.Struct, kw_only=True):
    """The client has entered a conversation: what it may have missed, and what is open in it."""

    conversation: str
    is_new: bool
    session_id: str  # of the conversation in the gateway, for display
    present: list[Author]  # at the clients that are connected, this one included
    entries: list[Entry]  # oldest first
    turns: list[Turn]  # still running, with the text so far
    prompts: list[Prompt]  # still open
    tasks: list[Task]
    members: list[str] = []  # users who may enter, if it is a room; the first 1,000


class Said(msgspec.Struct):
    """A user's words were kept; `is_own`: this client said them."""

    conversation: str
    entry: Entry
    is_own: bool


class Posted(msgspec.Struct):
    """An entry without an addressee was kept."""

    conversation: str
    entry: Entry
    is_own: bool


class Amended(msgspec.Struct):
    """A kept entry was replaced."""

    conversation: str
    entry: Entry
    is_own: bool


class TurnBegan(msgspec.Struct):
    """An agent got a user's words; its answer follows."""

    conversation: str
    turn: Turn
    is_own: bool


class Delta(msgspec.Struct):
    """A part of an answer; `turn.text` has all of it so far, this part included."""

    conversation: str
    turn: Turn
    text: str
    is_own: bool


class Stepped(msgspec.Struct):
    """A step of a turn has begun, changed or ended."""

    conversation: str
    turn: Turn
    step: Step
    is_own: bool


class Prompted(msgspec.Struct):
    """An agent asks the user."""

    conversation: str
    turn: Turn
    prompt: Prompt
    is_own: bool


class PromptClosed(msgspec.Struct):
    """A prompt needs no answer any more."""

    conversation: str
    prompt: Prompt
    how: PromptEnd
    is_own: bool


class Replied(msgspec.Struct):
    """An agent's final words were kept. `turn` is None for words that belong to no open turn."""

    conversation: str
    turn: Turn | None
    entry: Entry
    is_own: bool


class TurnFailed(msgspec.Struct):
    """A turn has failed: shown once, before `TurnEnded`. The entry was kept."""

    conversation: str
    turn: Turn
    code: str
    message: str
    details: Raw | None
    severity: str  # "warning", "error" or "critical"
    recoverable: bool
    entry: Entry
    is_own: bool


class TurnEnded(msgspec.Struct):
    """The last event of a turn, exactly once."""

    conversation: str
    turn: Turn
    how: TurnEnd
    is_own: bool


class TaskChanged(msgspec.Struct):
    """A task was created or changed, by a client or by an agent."""

    conversation: str
    task: Task  # all of it
    action: str
    by: Author
    is_own: bool
    dialect: str = ""  # the prefix of the dialect it came from; "": an agent


class ContextShared(msgspec.Struct):
    """Data were shared with agents, by a client or by an agent."""

    conversation: str
    context_id: str
    data: Raw
    agents: tuple[str, ...]
    by: Author
    is_own: bool


class Notified(msgspec.Struct):
    """See `Notify`; never shown to the client that sent it."""

    conversation: str
    kind: str
    by: Author
    data: Raw
    is_own: bool = False


class Read(msgspec.Struct):
    """Somebody has read entries."""

    conversation: str
    ids: tuple[str, ...]
    by: Author
    is_own: bool


class Readers(msgspec.Struct):
    """Who has read entries: by the id of the entry, each reader's id and the time."""

    conversation: str
    readers: dict[str, dict[str, str]]


class History(msgspec.Struct):
    """Entries of the past, oldest first."""

    conversation: str
    entries: list[Entry]
    has_more: bool


class Arrived(msgspec.Struct):
    """Another client has entered the conversation, or a user was invited (`is_member`)."""

    conversation: str
    author: Author
    is_member: bool = False


class Departed(msgspec.Struct):
    """Another client has left the conversation, or a user was expelled (`is_member`)."""

    conversation: str
    author: Author
    is_member: bool = False


Event = (
    Done
    | Refused
    | Entered
    | Said
    | Posted
    | Amended
    | TurnBegan
    | Delta
    | Stepped
    | Prompted
    | PromptClosed
    | Replied
    | TurnFailed
    | TurnEnded
    | TaskChanged
    | ContextShared
    | Notified
    | Read
    | Readers
    | History
    | Arrived
    | Departed
)
