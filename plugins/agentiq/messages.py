"""Read what an AgentIQ client sends.

In: both spellings of the prompt's type, missing ids, numbers as ids, null for absent, comments and
trailing commas. What does not fit is `Invalid`, which names the member.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw

from busd.gateway import Entry, parse_lenient
from busd_plugins.agentiq.content import Content, Words, without_nulls, words_of
from busd_plugins.agentiq.faults import Invalid

USER, INTERACTION, AUTH = "user_message", "user_interaction_message", "auth_message"
PROMPT = "system_interaction_message"
ALIASES = {"system_human_interaction": PROMPT, "system_human_interaction_name": PROMPT}
# What the gateway itself sends: clients that repeat it are understood, too.
OF_SYSTEM = (
    "system_response_message",
    "system_intermediate_message",
    PROMPT,
    "error_message",
    "observability_trace_message",
    "auth_response_message",
)
TYPES = (USER, INTERACTION, AUTH, *OF_SYSTEM, *ALIASES)
_FOR_AGENTS = ("schema_type", "schema_version", "user")  # passed on as metadata
SECRETS = ("security", "token", "api_key", "authorization", "password")
MISTAKEN = ("user", "payload")  # members in which clients may put a secret by mistake
IDS = ("id", "thread_id", "parent_id", "conversation_id")
_ABSENT_IDS = ("", "default")  # what the toolkit's own models write where there is none
_MAX_ID = 256
_OAUTH_HINT = "oauth_mode_preference"  # how to open a login page: the toolkit does not answer it
_WHERE = re.compile(r"^(?P<said>.*?)(?: - at `\$\.?(?P<where>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `([^`]*)`")


class User(msgspec.Struct):
    """Who writes, as the client says."""

    name: str = ""
    email: str = ""


class Message(msgspec.Struct):
    """A frame of a client, of any type."""

    type: str = ""
    id: str = ""
    schema_type: str = ""
    thread_id: str = ""
    parent_id: str = ""
    conversation_id: str = ""
    content: str | list[Any] | Content = ""
    user: str | User = ""
    payload: Any = None  # of an `auth_message`
    security: Any = None

    def words(self) -> Words:
        """Return what the user says; raise Invalid."""
        return words_of(self.content)

    @property
    def streams(self) -> bool:
        """Whether the answer is wanted piece by piece."""
        return self.schema_type not in ("generate", "chat")

    @property
    def author_name(self) -> str:
        name = self.user if isinstance(self.user, str) else self.user.name
        return "" if name == "default" else name[:_MAX_ID]

    @property
    def token(self) -> str:
        """The credential in `security`, "" if there is none."""
        held = self.security if isinstance(self.security, dict) else {}
        return _text(held, "token") or _text(held, "api_key")


def parse_frame(frame: str) -> dict[str, Any]:
    """Return the object in a frame; raise Invalid."""
    try:
        found = parse_lenient(frame)
    except ValueError as problem:
        raise Invalid("invalid_message", "", f"not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise Invalid("invalid_message", "", "not a JSON object")
    return found


def read_message(raw: dict[str, Any]) -> Message:
    """Return a message whose type is known; raise Invalid."""
    kind = raw.get("type")
    if kind is None or kind == "":
        raise Invalid("invalid_message", "type", f"missing; it is one of {', '.join(TYPES)}")
    if not isinstance(kind, str) or kind not in TYPES:
        shown = f"{kind!r}"[:80]
        reason = f"unknown: {shown}; it is one of {', '.join(TYPES)}"
        raise Invalid("invalid_message_type", "type", reason)
    try:
        message = msgspec.convert(_readable(raw), Message)
    except msgspec.ValidationError as problem:
        raise _invalid(str(problem)) from None
    except RecursionError:
        raise Invalid("invalid_message", "", "nested too deeply") from None
    message.type = ALIASES.get(kind, kind)
    return message


def _readable(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a frame without nulls, and with its ids as texts; raise Invalid."""
    # Other members are only kept: however large they are, they cost little.
    cleaned: dict[str, Any] = {
        name: without_nulls(raw[name]) if name != "content" else raw[name]
        for name in Message.__struct_fields__
        if raw.get(name) is not None
    }
    if isinstance(content := cleaned.get("content"), dict):
        cleaned["content"] = {name: each for name, each in content.items() if each is not None}
    for name in IDS:
        found = cleaned.get(name)
        if isinstance(found, int | str) and not isinstance(found, bool):
            if len(str(found)) > _MAX_ID:
                raise Invalid("invalid_message", name, f"longer than {_MAX_ID} characters")
            cleaned[name] = id_in(raw, name)
    return cleaned


def id_in(raw: dict[str, Any], name: str) -> str:
    """Return an id of a frame, "" if it has none that can be read."""
    found = raw.get(name)
    if isinstance(found, bool) or not isinstance(found, str | int):
        return ""
    text = str(found).strip()
    return "" if text in _ABSENT_IDS or len(text) > _MAX_ID else text


def name_of_session(session: str) -> str:
    """Return the conversation of a session that names none.

    In the toolkit the id of a session is what its cookie has: it is not kept as it is.
    """
    return (
        f"session-{sha256(session.encode(errors='replace')).hexdigest()[:16]}"
        if session.strip()
        else ""
    )


def credential_of(message: Message) -> str:
    """Return the token of an `auth_message`, "" if it is none of identity; raise Invalid."""
    payload = message.payload
    if not isinstance(payload, dict):
        raise Invalid("user_auth_error", "payload", "missing, or not an object")
    if payload.get("method") == _OAUTH_HINT:
        return ""
    name = "password" if payload.get("method") == "basic" else "token"
    token = _text(payload, name) or _text(payload, "api_key")
    if not token:
        raise Invalid("user_auth_error", f"payload.{name}", "missing, or not a string")
    return token


def entry_of(message: Message, raw: dict[str, Any], words: Words) -> Entry:
    """Return what is kept of a message."""
    kept = _without_secrets(raw)
    about = {name: kept[name] for name in _FOR_AGENTS if kept.get(name)}
    return Entry(
        text=words.text,
        id=message.id,
        type=message.type,
        thread_id=message.thread_id,
        attachments=words.attachments,
        metadata=Raw(msgspec.json.encode(about)) if about else msgspec.UNSET,
        original=Raw(msgspec.json.encode(kept)),
    )


def _without_secrets(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a frame without secrets."""
    kept = {name: value for name, value in raw.items() if name.casefold() not in SECRETS}
    for name in MISTAKEN:
        if isinstance(kept.get(name), dict):
            kept[name] = _without_secrets(kept[name])
    return kept


def system_text(raw: dict[str, Any]) -> str:
    """Return what a reader of a system message sees."""
    content = raw.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, dict):
        return ""
    names = ("name", "payload") if "payload" in content else ("text", "message", "details")
    return ": ".join(found for name in names if (found := _text(content, name)))


def _text(within: dict[str, Any], name: str) -> str:
    found = within.get(name)
    return found if isinstance(found, str) else ""


def _invalid(problem: str) -> Invalid:
    found = _WHERE.match(problem)
    said, where = (found["said"], found["where"] or "") if found else (problem, "")
    if missing := _MISSING.match(said):
        where, said = f"{where}.{missing[1]}".lstrip("."), "missing"
    code = "invalid_user_message_content" if where.startswith("content") else "invalid_message"
    return Invalid(code, where, said)
