"""Payloads of messages: their members checked by the type of the message, and completed."""

from __future__ import annotations

from collections.abc import Iterable

from busd.gateway import Author
from busd_plugins.group.errors import Invalid
from busd_plugins.group.links import clean_message
from busd_plugins.group.mentions import find_mentions
from busd_plugins.group.messages import Json, Message, author_of, number_of, text_of
from busd_plugins.group.people import People

# What must be there; all other types need the frame only.
NEEDED = {
    "chat": ("text",),
    "agent_response": ("text",),
    "system": ("text", "event_type"),
}
# Members that are absent if they are null. Unknown ones are kept as they are.
_TEXTS = ("text", "group_id", "reply_to", "event_type", "html_content", "thinking", "thread_id")
_IDS = ("task_id", "poll_id", "decision_id", "handoff_id", "message_id")
_NULLABLE = (
    *(*_TEXTS, *_IDS, "mentions", "assignees", "attachments", "subject", "status", "progress"),
    *("update_history", "confidence", "sources", "options", "due_date", "priority"),
)
_MAX_LISTED = 100  # people in one list


def complete_payload(message: Message, room: str, people: People) -> list[Author]:
    """Check and complete a payload in place and return whom the message mentions; raise Invalid."""
    payload = message.payload
    for name in _NULLABLE:
        if name in payload and payload[name] is None:
            del payload[name]
    for name in (*_TEXTS, *_IDS):
        if name in payload:
            payload[name] = text_of(payload[name], f"payload.{name}")
    for name in NEEDED.get(message.type, ()):
        if name not in payload:
            raise Invalid(f"payload.{name}", "缺失")
    _check_group(payload, room)
    if "confidence" in payload:
        number_of(payload["confidence"], "payload.confidence", 1)
    if message.type == "agent_response":
        payload.setdefault("reply_to", "")
    clean_message(message.frame)
    if "assignees" in payload:
        payload["assignees"] = read_people(payload["assignees"], "payload.assignees", people)
    return _complete_mentions(payload, people)


def _check_group(payload: Json, room: str) -> None:
    group = payload.get("group_id")
    if group and group != room:
        raise Invalid("payload.group_id", "是另一个房间；请连接到那个房间再发送")
    payload["group_id"] = room


def _complete_mentions(payload: Json, people: People) -> list[Author]:
    """Return the mentions of a payload: those that the client lists, and those in the text."""
    mentioned: dict[tuple[str, str], Author] = {}
    if "mentions" in payload:
        payload["mentions"] = listed = read_people(payload["mentions"], "payload.mentions", people)
        mentioned = {(author.type, author.id): author for author in authors_of(listed)}
    for author in find_mentions(payload.get("text", ""), people):
        if (author.type, author.id) not in mentioned:
            mentioned[author.type, author.id] = author
            payload.setdefault("mentions", []).append(described(author))
    return list(mentioned.values())


def read_people(given: object, field: str, people: People) -> list[Json]:
    """Return a list of users and agents, each as an object with id, type and name."""
    if not isinstance(given, list):
        raise Invalid(field, "必须是数组")
    if len(given) > _MAX_LISTED:
        raise Invalid(field, f"超过{_MAX_LISTED}项")
    return [_person(item, f"{field}[{number}]", people) for number, item in enumerate(given)]


def _person(given: object, field: str, people: People) -> Json:
    if isinstance(given, dict):
        author = author_of(given, field)
        if author.type == "system":
            raise Invalid(f"{field}.type", "必须是 user 或 agent")
        return {**given, **described(author)}
    name = text_of(given, field)  # also as a bare name or id
    if not name:
        raise Invalid(field, "缺失")
    if name.startswith("agent:"):
        name = name.removeprefix("agent:")
        return described(people.named(name, ("agent",)) or Author(name, "agent", name))
    return described(people.named(name) or Author(name, "user", name))


def described(author: Author) -> Json:
    """Return an author as the format describes one."""
    return {"id": author.id, "type": author.type, "name": author.name or author.id}


def authors_of(listed: Iterable[object]) -> list[Author]:
    """Return the people of a list that was read before; skip what is none."""
    found = []
    for item in listed:
        if isinstance(item, dict):
            try:
                found.append(author_of(item, ""))
            except Invalid:
                continue
    return found
