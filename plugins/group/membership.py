"""Who is in a room: `connect`, `disconnect`, `join` and `leave`."""

from __future__ import annotations

from collections.abc import Callable

from busd.gateway import (
    AskHistory,
    Authenticate,
    Author,
    Close,
    Effects,
    Enter,
    Expel,
    Invite,
    Leave,
    Post,
    Send,
)
from busd_plugins.group.errors import OF_RULES, Invalid
from busd_plugins.group.frames import Frames
from busd_plugins.group.messages import Json, Message, Type, number_of, text_of
from busd_plugins.group.outcomes import Outcomes
from busd_plugins.group.payloads import authors_of, complete_payload
from busd_plugins.group.room import Room
from busd_plugins.group.words import entry_of

HISTORY = 10  # messages that a client is shown when it enters
_MAX_HISTORY = 500
_MAX_NUMBER = 2**53


class Membership:
    """Lets one client in and out of its room."""

    def __init__(self, room: Room, frames: Frames, outcomes: Outcomes) -> None:
        self._room = room
        self._frames = frames
        self._outcomes = outcomes
        self._author: Author | None = None
        self.by_type: dict[Type, Callable[[Message], Effects]] = {
            "connect": self._connect,
            "connect_ack": self._ignore,
            "disconnect": self._disconnect,
            "ping": self._ping,
            "pong": self._ignore,
            "join": self._join,
            "leave": self._leave,
        }

    @property
    def author(self) -> Author:
        """Who is at the client, as far as it is known."""
        return self._author or Author(self._room.user)

    def enter(self, *, last: int = HISTORY, after: str = "") -> Effects:
        """Enter the room, a new one if need be; the other user of a new pair becomes a member."""
        name = self._room.name
        partner = self._room.partner_of(self._room.user)
        pair = (self._room.user, partner) if partner else ()
        request = Enter(name, self._author, last, after, is_room=True, creators=pair)
        if not (yield from self._outcomes.perform(request)):
            return
        if partner and self._room.is_new:
            yield from self._outcomes.perform(Invite(name, partner), is_silent=True)

    def _connect(self, message: Message) -> Effects:
        """Authenticate, enter the room and acknowledge; or page back in its history."""
        if message.token:
            # A client that has proved who it is may have a token of another system.
            request = Authenticate(message.token)
            yield from self._outcomes.perform(request, is_silent=bool(self._room.user))
        if not self._room.user:
            if not message.token:
                code, text = OF_RULES["unauthenticated"]
                yield Send(self._frames.error(code, text, "payload.auth_token: 缺失"))
            return
        if message.sender.type == "user" and message.sender.id:
            self._author = message.sender
        yield from self._enter_as_asked(message.payload)

    def _enter_as_asked(self, payload: Json) -> Effects:
        after = text_of(payload.get("last_message_id"), "payload.last_message_id")
        asked = payload.get("history")
        limit, before = HISTORY, 0
        if isinstance(asked, dict):
            if asked.get("last") is not None:
                limit = int(number_of(asked["last"], "payload.history.last", _MAX_HISTORY))
            if asked.get("before") is not None:
                before = int(number_of(asked["before"], "payload.history.before", _MAX_NUMBER))
        if self._room.is_entered and isinstance(asked, dict):
            yield from self._outcomes.perform(AskHistory(self._room.name, before, limit))
            return
        # Who has been shown the last messages when it connected is not shown them once more.
        last = 0 if self._room.is_entered or after else limit
        yield from self.enter(last=last, after=after)

    def _disconnect(self, message: Message) -> Effects:
        yield Close("disconnect")

    def _ping(self, message: Message) -> Effects:
        yield Send(self._frames.make("pong", {}))

    def _ignore(self, message: Message) -> Effects:
        """Accept what needs no answer."""
        yield from ()

    def _join(self, message: Message) -> Effects:
        """Enter the room again, or make somebody a member; the room is told who joined."""
        complete_payload(message, self._room.name, self._room.people)
        if not self._room.is_entered:
            self._author = message.sender
            yield from self.enter()
            if not self._room.is_entered:
                return
        for subject in _subjects(message.payload):
            if subject.id == message.sender.id:
                continue
            if not (yield from self._outcomes.perform(Invite(self._room.name, subject.id))):
                return
        self._room.spoken_by(message.sender)
        yield from self._outcomes.perform(Post(self._room.name, entry_of(message, ())))

    def _leave(self, message: Message) -> Effects:
        """Leave the room, or end the membership of who is named; the room is told who left."""
        complete_payload(message, self._room.name, self._room.people)
        subjects = _subjects(message.payload)
        others = [subject for subject in subjects if subject.id != message.sender.id]
        for subject in others:
            if not (yield from self._outcomes.perform(Expel(self._room.name, subject.id))):
                return
        post = Post(self._room.name, entry_of(message, ()))
        if not (yield from self._outcomes.perform(post)) or others:
            return
        if subjects:
            yield from self._outcomes.perform(Expel(self._room.name, self._room.user))
        yield from self._outcomes.perform(Leave(self._room.name), is_silent=bool(subjects))
        self._room.left()


def _subjects(payload: Json) -> list[Author]:
    """Return whom a `join` or `leave` is about, if not its sender; raise Invalid."""
    given = payload.get("subject")
    if given is None:
        return []
    found = authors_of([given])
    if not found:
        raise Invalid("payload.subject", "必须是带有 id 的对象")
    return found
