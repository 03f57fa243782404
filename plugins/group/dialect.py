"""The dialect: what goes in and out of one connection."""

from __future__ import annotations

from busd.gateway import Dialect, Done, Effects, Event, Frame, Hello, Refused, Send
from busd_plugins.group.errors import NO_JSON, OF_RULES, Invalid
from busd_plugins.group.frames import Frames
from busd_plugins.group.membership import Membership
from busd_plugins.group.messages import Message, read_message
from busd_plugins.group.outcomes import Outcomes
from busd_plugins.group.requests import Requests
from busd_plugins.group.room import PREFIX, Room
from busd_plugins.group.schema import MESSAGES
from busd_plugins.group.showing import Showing


class GroupChat(Dialect):
    """A client of a group chat, in one room."""

    prefix = PREFIX
    messages = MESSAGES

    def __init__(self, hello: Hello) -> None:
        super().__init__(hello)
        room = Room(hello)
        self._hello = hello
        self._room = room
        self._frames = Frames(hello, room)
        self._message_id = ""  # of the message that is performed
        self._outcomes = Outcomes()
        self._membership = Membership(room, self._frames, self._outcomes)
        self._requests = Requests(hello, room, self._outcomes)
        self._showing = Showing(room, self._frames, lambda: self._membership.author)

    def open(self) -> Effects:
        """Enter the room at once, as far as it is known who the client is; else at `connect`."""
        if self._room.user:
            yield from self._membership.enter()

    def receive(self, frame: Frame) -> Effects:
        """Do what a message asks for, or tell what is wrong with it."""
        self._message_id = ""
        try:
            message = read_message(frame)
            self._message_id = message.id
            yield from self._effects(message)
        except Invalid as problem:
            yield Send(
                self._frames.error(
                    problem.code,
                    problem.text,
                    problem.details,
                    request_id=problem.message_id or self._message_id,
                )
            )

    def _effects(self, message: Message) -> Effects:
        if message.type == "connect":
            self._showing.is_streaming |= _wants_streaming(message)
        if message.sender.type == "system" and not self._hello.is_owner:
            # People believe what the system says.
            raise Invalid("sender.type", "不能是 system")
        if effects := self._membership.by_type.get(message.type):
            yield from effects(message)
        else:
            yield from self._requests.of(message)

    def show(self, event: Event) -> Effects:
        """Show an event to the client."""
        if isinstance(event, Done):
            self._outcomes.note_done(event)
            if event.is_duplicate and event.entry:
                # The client has sent it before and does not know that it arrived.
                yield Send(self._frames.of_entry(event.entry, self._room.tasks))
            return
        if isinstance(event, Refused):
            if not self._outcomes.is_silent(event):
                yield Send(self._frames.refused(event, self._message_id))
            return
        self._room.learn(event)
        for frame in self._showing.frames_of(event):
            yield Send(frame)

    def refuse(self, rule: str, reason: str) -> Effects:
        """Notify the client that its frame was not passed on, or why the connection is closed."""
        code, text = OF_RULES[rule]
        yield Send(self._frames.error(NO_JSON if rule == "invalid" else code, text, reason))


def _wants_streaming(message: Message) -> bool:
    features = message.payload.get("features")
    return isinstance(features, list) and "streaming" in features
