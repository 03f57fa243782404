"""What the payloads of messages consist of.

Members that are not listed are kept and passed on. A listed one that is null is taken as absent.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

Text = str | UnsetType
Flag = bool | UnsetType
Texts = list[str] | UnsetType
Number = float | UnsetType
Anything = dict[str, Any] | UnsetType


class Person(Struct):
    """A user, an agent, or the system (`system`, `系统`)."""

    id: str
    type: Literal["user", "agent", "system"]
    name: str


People = list[Person] | UnsetType


class File(Struct):
    """A file; the gateway replaces its address by a link that expires."""

    id: Text = UNSET
    name: Text = UNSET
    type: Text = UNSET
    mime_type: Text = UNSET
    size: int | UnsetType = UNSET
    url: Text = UNSET
    data: Text = UNSET


class Words(Struct, kw_only=True):
    """What is said in a room; `group_id` is the room, also if it is missing."""

    text: Text = UNSET
    group_id: Text = UNSET
    reply_to: Text = UNSET
    mentions: People = UNSET
    attachments: list[File] | UnsetType = UNSET
    thread_id: Text = UNSET
    format: Text = UNSET


class Media(Words, kw_only=True):
    """A picture, a file or a sound."""

    url: Text = UNSET
    file_url: Text = UNSET
    name: Text = UNSET
    mime_type: Text = UNSET
    size: int | UnsetType = UNSET
    data: Text = UNSET


class RichText(Words, kw_only=True):
    """Formatted text; the gateway makes HTML harmless."""

    html_content: Text = UNSET


class Response(Words, kw_only=True):
    """What an agent says: first that it thinks, then the answer."""

    is_thinking: Flag = UNSET
    confidence: Number = UNSET
    thinking: Text = UNSET
    sources: list[Any] | UnsetType = UNSET


class Event(Words, kw_only=True):
    """Something that happened: `member_joined`, `member_left`, `notification`, …"""

    event_type: Text = UNSET
    subject: Person | UnsetType = UNSET


class Update(Struct):
    """One change of something that is tracked."""

    timestamp: str
    updated_by: Person
    status: Text = UNSET
    progress: Number = UNSET


class Tracked(Words, kw_only=True):
    """Something whose state is tracked."""

    task_id: Text = UNSET
    title: Text = UNSET
    status: Text = UNSET
    progress: Number = UNSET  # 0 to 100
    update_history: list[Update] | UnsetType = UNSET
    assignees: People = UNSET
    result: Any = UNSET


class Task(Tracked, kw_only=True):
    """A task; agents among the assignees get its text."""

    task_type: Text = UNSET
    due_date: Text = UNSET
    priority: Text = UNSET


class Choice(Struct):
    """An option of a poll."""

    id: Text = UNSET
    text: Text = UNSET
    value: Text = UNSET
    description: Text = UNSET


class Poll(Tracked, kw_only=True):
    """A poll of users, an agent's question, or a vote for an option's id, text or value."""

    poll_id: Text = UNSET
    options: list[str | Choice] | UnsetType = UNSET
    multiple: Flag = UNSET
    vote: Text = UNSET
    votes: Texts = UNSET
    results: dict[str, list[str]] | UnsetType = UNSET  # who voted, by the option's id
    total_votes: int | UnsetType = UNSET
    input_type: Text = UNSET  # of an agent's question
    required: Flag = UNSET
    placeholder: Text = UNSET
    seconds_left: Number = UNSET


class Decision(Tracked, kw_only=True):
    """A decision."""

    decision_id: Text = UNSET


class Handoff(Tracked, kw_only=True):
    """Something that is handed over, for instance the task `task_id`."""

    handoff_id: Text = UNSET
    to: Person | UnsetType = UNSET


class TaskUpdate(Poll, kw_only=True):
    """A new state of a task, poll, decision or handoff."""

    decision_id: Text = UNSET
    handoff_id: Text = UNSET
    task_type: Text = UNSET
    due_date: Text = UNSET
    priority: Text = UNSET


class Fault(Words, kw_only=True):
    """An error; the frame has its code and text in `error`, too."""

    code: Text = UNSET
    severity: Text = UNSET
    details: Any = UNSET
    retry_seconds: Number = UNSET


class Work(Struct):
    """A step of an agent."""

    id: str
    name: str
    parent_id: Text = UNSET
    tool: Text = UNSET
    arguments: Any = UNSET
    result: Any = UNSET
    code: Text = UNSET


class Status(Words, kw_only=True):
    """A state, or a step of an agent. `cancelled`, in reply to words, cancels the answers."""

    status: Text = UNSET
    step: Work | UnsetType = UNSET


class Settings(Words, kw_only=True):
    """Settings, or data that were shared with agents."""

    context_id: Text = UNSET
    context_data: Any = UNSET
    target_agents: Texts = UNSET


class Typing(Struct, kw_only=True):
    """Somebody types, in either of two spellings."""

    group_id: Text = UNSET
    is_typing: Flag = UNSET
    status: Text = UNSET
    remaining_text: Number = UNSET


class Reader(Struct):
    """Who has read a message, and when."""

    id: str
    read_at: str


class Receipt(Struct, kw_only=True):
    """Messages were read; with `query`, a question for who has read them."""

    group_id: Text = UNSET
    message_ids: Texts = UNSET
    message_id: Text = UNSET
    query: Flag = UNSET
    readers: dict[str, list[Reader]] | UnsetType = UNSET


class Connect(Struct, kw_only=True):
    """Who the client is, and what of the past it wants."""

    client_info: Anything = UNSET
    auth_token: Text = UNSET
    features: Texts = UNSET  # "streaming": answers while they are written
    last_message_id: Text = UNSET  # all messages after this one
    history: Anything = UNSET  # {"last": 10, "before": NUMBER}: pages back


class Connected(Struct, kw_only=True):
    """The client is in the room; or it has been sent the messages it asked for."""

    session_id: str
    server_info: Anything = UNSET
    user_info: Anything = UNSET
    history: Anything = UNSET  # count, has_more, before


class Nothing(Struct):
    """No member is needed."""


PAYLOADS: dict[str, type[Struct]] = {
    "connect": Connect,
    "connect_ack": Connected,
    **dict.fromkeys(("disconnect", "ping", "pong"), Nothing),
    **dict.fromkeys(("chat", "markdown"), Words),
    **dict.fromkeys(("image", "file", "voice"), Media),
    **dict.fromkeys(("system", "join", "leave"), Event),
    "agent_response": Response,
    "rich_text": RichText,
    "task": Task,
    "task_update": TaskUpdate,
    "poll": Poll,
    "decision": Decision,
    "handoff": Handoff,
    "typing": Typing,
    "read_receipt": Receipt,
    "error": Fault,
    "status": Status,
    "settings": Settings,
}
