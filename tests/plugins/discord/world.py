"""What there is at the local Discord: users, channels, messages, and what goes wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import anyio
import msgspec

from tests.daemons import PATIENCE_SECONDS

Json = dict[str, Any]

EPOCH_MS = 1_420_070_400_000
BOT = 1000
APPLICATION = 1001
GUILD = 2000
TOKEN = "the-token-of-the-bot"
TEXT, DIRECT, THREAD = 0, 1, 11
GUILD_MESSAGES, DIRECT_MESSAGES, CONTENT = 1 << 9, 1 << 12, 1 << 15
_MAX_CONTENT = 2000
_NONCE_SECONDS = 180.0


class ApiError(Exception):
    """An answer that is a refusal."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        self.status = status
        self.body: Json = {"message": message, "code": code, **more}
        self.headers: dict[str, str] = {}


class Fault(msgspec.Struct):
    """What goes wrong with the next requests that match."""

    method: str
    path: str  # a regular expression
    status: int = 0  # 0: no answer at all
    body: Any = None
    headers: dict[str, str] = {}
    is_after: bool = False  # the request has its effect before
    is_half: bool = False  # of the answer
    hangs: bool = False
    times: int = 1


class Channel(msgspec.Struct):
    """A channel, a thread, or the direct messages with a user."""

    id: int
    kind: int
    name: str = ""
    parent_id: int = 0
    user_id: int = 0
    messages: list[Json] = []
    refusal: ApiError | None = None  # what the bot gets for whatever it does there

    @property
    def as_json(self) -> Json:
        last = self.messages[-1]["id"] if self.messages else None
        found: Json = {"id": str(self.id), "type": self.kind, "last_message_id": last}
        if self.kind == DIRECT:
            return found | {"recipients": [user_json(self.user_id)]}
        found |= {"guild_id": str(GUILD), "name": self.name, "position": 0, "nsfw": False}
        found |= {"permission_overwrites": [], "parent_id": str(self.parent_id) or None}
        if self.kind == THREAD:
            when = datetime.now(UTC).isoformat()
            found |= {"owner_id": "1", "message_count": 0, "member_count": 1}
            found["thread_metadata"] = {
                "archived": False,
                "auto_archive_duration": 60,
                "archive_timestamp": when,
                "locked": False,
            }
        else:
            found["parent_id"] = None
        return found


class World:
    """All of it; tests say what users do, and read what the bot has done."""

    def __init__(self) -> None:
        self.channels: dict[int, Channel] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.typing: list[int] = []
        self.callbacks: dict[str, Json] = {}  # answers to presses, by the press's id
        self.token = TOKEN
        self.intents = GUILD_MESSAGES | DIRECT_MESSAGES | CONTENT  # that the portal allows
        self.sessions_left = 1000
        self.dispatch: Callable[[str, Json], None] = lambda name, data: None
        self._nonces: dict[tuple[int, str], tuple[float, Json]] = {}
        self._ids = count()
        self._last_id = 0
        self._changed = anyio.Event()

    # Waiting

    def wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while not condition():
                await self._changed.wait()

    # What there is

    def new_id(self) -> int:
        """Return a snowflake of just now; each is larger than the one before."""
        wanted = (int(time.time() * 1000) - EPOCH_MS) << 22
        self._last_id = max(wanted, self._last_id + 1)
        return self._last_id

    def add(self, kind: int = TEXT, name: str = "general", **more: Any) -> Channel:
        channel = Channel(self.new_id(), kind, name, messages=[], **more)
        self.channels[channel.id] = channel
        return channel

    def direct(self, user_id: int = 1) -> Channel:
        return self.add(DIRECT, "", user_id=user_id)

    def find(self, channel_id: int) -> Channel:
        channel = self.channels.get(channel_id)
        if channel is None:
            raise ApiError(404, 10003, "Unknown Channel")
        if channel.refusal is not None:
            raise channel.refusal
        return channel

    def said(self, channel: Channel) -> list[str]:
        """Return what the bot has said in a channel."""
        return [each["content"] for each in self.own(channel)]

    def own(self, channel: Channel) -> list[Json]:
        return [each for each in channel.messages if each["author"]["id"] == str(BOT)]

    # What users do

    def say(self, channel: Channel, text: str, user_id: int = 1, **more: Any) -> Json:
        """Write as a user; `answers` is a message."""
        answered = more.pop("answers", None)
        if answered is not None:
            more["type"] = 19
            more["message_reference"] = {
                "message_id": answered["id"],
                "channel_id": str(channel.id),
            }
            more["referenced_message"] = answered
        message = self._message(channel, text, user_id, **more)
        channel.messages.append(message)
        self.dispatch("MESSAGE_CREATE", self._event(channel, message))
        return message

    def change(self, channel: Channel, message: Json, text: str | None = None) -> None:
        """Edit a message; without a text only its preview changes."""
        if text is not None:
            message["content"] = text
            message["edited_timestamp"] = datetime.now(UTC).isoformat()
        self.dispatch("MESSAGE_UPDATE", self._event(channel, message))

    def press(
        self,
        channel: Channel,
        message: Json,
        label: str = "",
        user_id: int = 1,
        values: list[str] | None = None,
    ) -> str:
        """Press the button with this label, or choose from the menu; return the press's id."""
        [row] = message["components"]
        [part] = [each for each in row["components"] if each.get("label", "") == label]
        press_id = str(self.new_id())
        data: Json = {"custom_id": part["custom_id"], "component_type": part["type"]}
        if values is not None:
            data["values"] = [each["value"] for each in part["options"] if each["label"] in values]
        who: Json = {"user": user_json(user_id)}
        if channel.kind != DIRECT:
            who = {"guild_id": str(GUILD), "member": member_json(user_id)}
        self.dispatch(
            "INTERACTION_CREATE",
            {
                "id": press_id,
                "application_id": str(APPLICATION),
                "type": 3,
                "token": f"press-{press_id}",
                "version": 1,
                "channel_id": str(channel.id),
                "channel": channel.as_json,
                "message": message,
                "data": data,
                "locale": "en-GB",
                "entitlements": [],
                "authorizing_integration_owners": {},
                "attachment_size_limit": 1_000_000,
                **who,
            },
        )
        return press_id

    def _message(self, channel: Channel, text: str, user_id: int, **more: Any) -> Json:
        mentioned = {int(each) for each in re.findall(r"<@!?(\d+)>", text)}
        return {
            "id": str(self.new_id()),
            "channel_id": str(channel.id),
            "author": user_json(user_id),
            "content": text,
            "timestamp": datetime.now(UTC).isoformat(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [user_json(each) for each in sorted(mentioned)],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": [],
            "pinned": False,
            "type": 0,
            **more,
        }

    def _event(self, channel: Channel, message: Json) -> Json:
        if channel.kind == DIRECT:
            return dict(message)
        member = member_json(int(message["author"]["id"]))
        del member["user"]
        return message | {"guild_id": str(GUILD), "member": member}

    def seen_by(self, intents: int, event: Json) -> Json | None:
        """Return what a session with these intents gets of a message."""
        is_direct = "guild_id" not in event
        if not intents & (DIRECT_MESSAGES if is_direct else GUILD_MESSAGES):
            return None
        is_own = event["author"]["id"] == str(BOT)
        is_mentioned = any(each["id"] == str(BOT) for each in event["mentions"])
        if is_direct or is_own or is_mentioned or intents & CONTENT:
            return event
        return event | {"content": "", "attachments": [], "embeds": [], "components": []}

    # What the bot does

    def post(self, channel_id: int, said: Json, files: int = 0) -> Json:
        channel = self.find(channel_id)
        nonce = str(said.get("nonce", ""))
        _check_content(said, files)
        if len(nonce) > 25:
            raise ApiError(400, 50035, "Invalid Form Body")
        if said.get("enforce_nonce"):
            posted_at, message = self._nonces.get((channel_id, nonce), (0.0, {}))
            if message and time.monotonic() - posted_at < _NONCE_SECONDS:
                return message
        reference = said.get("message_reference")
        if reference is not None and not any(
            each["id"] == str(reference["message_id"]) for each in channel.messages
        ):
            if reference.get("fail_if_not_exists", True):
                raise ApiError(400, 50035, "Invalid Form Body: unknown message")
            reference = None
        message = self._message(channel, said.get("content") or "", BOT)
        message["components"] = said.get("components", [])
        message["allowed_mentions"] = said.get("allowed_mentions")
        message["attachments_sent"] = files
        if reference is not None:
            message["type"] = 19
            message["message_reference"] = {key: str(each) for key, each in reference.items()}
        message["nonce"] = nonce
        channel.messages.append(message)
        self._nonces[channel_id, nonce] = (time.monotonic(), message)
        self.dispatch("MESSAGE_CREATE", self._event(channel, message))
        self.wake()
        return message

    def forget_nonces(self) -> None:
        """As if minutes had passed."""
        self._nonces.clear()

    def edit(self, channel_id: int, message_id: str, said: Json) -> Json:
        channel = self.find(channel_id)
        _check_content(said, 0)
        for message in self.own(channel):
            if message["id"] == message_id:
                message |= {key: said[key] for key in ("content", "components") if key in said}
                message["edited_timestamp"] = datetime.now(UTC).isoformat()
                message.setdefault("edits", []).append(said.get("content"))
                self.wake()
                return message
        raise ApiError(404, 10008, "Unknown Message")

    def history(self, channel_id: int, query: Json) -> list[Json]:
        """Return a page of messages, the newest first, as Discord does."""
        channel, limit = self.find(channel_id), int(query.get("limit", 50))
        found = channel.messages
        if "after" in query:
            found = [each for each in found if int(each["id"]) > int(query["after"])][:limit]
        if "before" in query:
            found = [each for each in found if int(each["id"]) < int(query["before"])]
        hidden = ("nonce", "edits", "attachments_sent", "allowed_mentions")
        return [
            {key: each[key] for key in each if key not in hidden} for each in found[-limit:][::-1]
        ]


def _check_content(said: Json, files: int) -> None:
    content = said.get("content") or ""
    if len(content) > _MAX_CONTENT:
        raise ApiError(400, 50035, "Invalid Form Body: content must be 2000 or fewer in length")
    if not content.strip() and not files and "components" not in said:
        raise ApiError(400, 50006, "Cannot send an empty message")


def user_json(user_id: int) -> Json:
    is_bot = user_id == BOT
    name = "busd-bot" if is_bot else f"user{user_id}"
    return {
        "id": str(user_id),
        "username": name,
        "discriminator": "0",
        "global_name": None if is_bot else f"User {user_id}",
        "avatar": None,
        "bot": is_bot,
        "flags": 0,
    }


def member_json(user_id: int) -> Json:
    when = datetime.now(UTC).isoformat()
    return {
        "user": user_json(user_id),
        "roles": [],
        "joined_at": when,
        "deaf": False,
        "mute": False,
        "flags": 0,
        "permissions": "0",
        "nick": None,
        "avatar": None,
    }
