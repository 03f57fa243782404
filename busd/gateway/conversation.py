"""What a conversation consists of: authors, entries, turns, prompts and tasks.

These are the words in which all dialects and the agents of the bus understand each other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.vocabulary.turn_events import Attachment, InputType, Option, StepStatus

__all__ = [
    "Attachment",
    "Author",
    "AuthorType",
    "Entry",
    "InputType",
    "Kind",
    "Option",
    "Prompt",
    "PromptEnd",
    "Step",
    "StepStatus",
    "Task",
    "TaskUpdate",
    "Turn",
    "TurnEnd",
]

AuthorType = Literal["user", "agent", "system"]


class Author(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody who takes part in a conversation. An agent's id has no `agent:`."""

    id: str
    type: AuthorType = "user"
    name: str = ""  # for display; "": the id


class Kind(StrEnum):
    """What an entry is."""

    WORDS = "words"  # of a user, for agents
    REPLY = "reply"  # an agent's final words
    FAILURE = "failure"  # a turn has failed
    POST = "post"  # everything else that is kept


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing said in a conversation. It is kept, in the order of the numbers."""

    text: str = ""
    id: str = ""  # unique in the conversation; "": the host makes one
    author: Author = Author("")
    timestamp: str = ""  # "": the host's time
    number: int = 0  # given by the store; ascends
    kind: Kind = Kind.WORDS
    type: str = ""  # in the words of its dialect, for instance "image"
    dialect: str = ""  # the prefix of the dialect it came from; "": an agent
    turn: str = ""  # of a reply or failure: the id of the words that it answers
    to: tuple[str, ...] = ()  # agents, without `agent:`
    reply_to: str = ""
    thread_id: str = ""
    prompt_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    mentions: tuple[Author, ...] = ()
    metadata: Raw | UnsetType = UNSET
    # The whole frame, for clients of the same dialect. Secrets are taken out by the dialect.
    original: Raw | UnsetType = UNSET


class Turn(msgspec.Struct, kw_only=True):
    """An agent at work on the words whose id is `id`; a mention of two agents begins two turns."""

    id: str
    agent: Author  # its id is "" until the agent is known
    author: Author  # who said the words
    thread_id: str = ""
    timestamp: str = ""  # of its beginning
    text: str = ""  # of the answer so far
    has_steps: bool = False
    reply_id: str = ""  # the id that the entry of its reply or failure will have


class Step(msgspec.Struct, kw_only=True):
    """Something that an agent does during a turn, for instance the use of a tool."""

    id: str
    name: str
    parent: str = ""
    tool: str = ""
    arguments: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET  # any JSON value
    status: StepStatus = "in_progress"
    code: str = ""  # why it failed: "missing" (no such tool), "arguments", or "" (at work)


class Prompt(msgspec.Struct, kw_only=True):
    """A question of an agent."""

    id: str
    turn: str
    input_type: InputType
    text: str
    options: tuple[Option, ...] = ()
    placeholder: str = ""
    required: bool = True
    timestamp: str = ""
    seconds_left: float | None = None  # None: no limit


class PromptEnd(StrEnum):
    """How a prompt was closed."""

    ANSWERED = "answered"
    TIMED_OUT = "timed_out"
    TURN_ENDED = "turn_ended"


class TurnEnd(StrEnum):
    """How a turn has ended."""

    REPLIED = "replied"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Task(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something to be done, a poll, a decision or a handoff, with its state."""

    task_id: str
    kind: str | UnsetType = UNSET  # "task", "poll", "decision", "handoff"
    status: str | UnsetType = UNSET
    progress: float | UnsetType = UNSET  # 0 to 100
    result: Raw | UnsetType = UNSET
    title: str | UnsetType = UNSET
    assignees: tuple[Author, ...] | UnsetType = UNSET
    entry_id: str | UnsetType = UNSET  # of the entry that created it
    # What else a dialect or an agent says of it: an object. A change is merged into it (RFC 7396:
    # objects recursively, null removes a member).
    data: Raw | UnsetType = UNSET
    history: tuple[TaskUpdate, ...] = ()  # kept by the host, the last 100


class TaskUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a task."""

    timestamp: str
    by: Author
    status: str = ""
    progress: float | UnsetType = UNSET
