"""The dialect: what a client's messages ask for, and what it is shown."""

from __future__ import annotations

from typing import Any

from busd.gateway import (
    Answer,
    Authenticate,
    Author,
    Dialect,
    Done,
    Effects,
    Enter,
    Entry,
    Event,
    Frame,
    Hello,
    Kind,
    Leave,
    Post,
    Refused,
    Request,
    Say,
    Send,
)
from busd_plugins.agentiq import messages
from busd_plugins.agentiq.content import Words
from busd_plugins.agentiq.display import Display
from busd_plugins.agentiq.faults import Invalid, code_of_rule, details_of
from busd_plugins.agentiq.frames import Place
from busd_plugins.agentiq.interactions import values_of
from busd_plugins.agentiq.messages import AUTH, INTERACTION, USER, Message
from busd_plugins.agentiq.rooms import Room
from busd_plugins.agentiq.schema import MESSAGES

_MAX_ROOMS = 32  # that one connection is in; the one that was used least recently is left


class AgentIQ(Dialect):
    """One connection of a client of the NeMo Agent Toolkit."""

    prefix = "agentiq"
    messages = MESSAGES
    max_frame_bytes = 4 * 1024 * 1024  # clients send the whole conversation along
    # The toolkit's web UI connects again to send a message, and takes the end of an answer that it
    # has missed for that of the new one, of which it then shows nothing more. It sends at once.
    first_frame_seconds = 0.5

    def __init__(self, hello: Hello) -> None:
        super().__init__(hello)
        self._user = hello.user
        self._display = Display(hello, self.prefix)
        self._is_open = False
        self._outcome: Done | Refused | None = None  # of the last effect that was performed
        self._named = hello.query.get("conversation_id", "").strip()
        self._session = messages.name_of_session(hello.query.get("session", ""))
        # Clients reject frames without a conversation, those of errors too.
        self._home = self._named or self._session or hello.new_id()

    def open(self) -> Effects:
        """Enter the conversation of the URL, for what waits there; there is no greeting."""
        self._is_open = True
        if self._user and (self._named or self._session):
            yield from self._enter(self._home)
            yield from self._complain_of_refusal(Place(self._home))

    def receive(self, frame: Frame) -> Effects:
        raw: dict[str, Any] = {}
        try:
            if not isinstance(frame, str):
                raise Invalid("invalid_message", "", "not a text frame")
            raw = messages.parse_frame(frame)
            message = messages.read_message(raw)
            if message.type != USER:
                yield from self._open_first()
            if message.type == AUTH:
                yield from self._authenticate(message)
            elif message.type == USER:
                yield from self._say(message, raw)
            elif message.type == INTERACTION:
                yield from self._answer(message, raw)
            else:
                yield from self._repeat(message, raw)
        except Invalid as fault:
            yield from self._open_first()
            place = self._place_in(raw)
            yield from self._complain(place, fault, raw.get("type") == USER)
            if raw.get("type") == INTERACTION:
                yield from self._display.ask_again(place, messages.id_in(raw, "parent_id"))

    def _open_first(self) -> Effects:
        """Open the connection now: the first frame is no message that takes the place of others."""
        if not self._is_open:
            yield from self.open()

    def show(self, event: Event) -> Effects:
        if isinstance(event, Done | Refused):
            self._outcome = event
        yield from self._display.show(event)

    def refuse(self, rule: str, reason: str) -> Effects:
        place, frames = Place(self._home), self._display.frames
        yield Send(frames.error(place, code_of_rule(rule), reason, rule))
        if not any(room.has_answers for room in self._display.rooms.values()):
            yield Send(frames.complete(place))  # it may have been words that wait for an answer

    # What a client's messages ask for

    def _authenticate(self, message: Message) -> Effects:
        """Adopt the identity that an `auth_message` proves."""
        frames = self._display.frames
        try:
            token = messages.credential_of(message)
        except Invalid as fault:
            yield Send(frames.not_authenticated(fault.details))
            return
        if not token:
            return
        yield from self._prove(token)
        if refusal := self._refusal:
            yield Send(frames.not_authenticated(refusal.reason))
            return
        yield Send(frames.authenticated(self._user))
        yield from self.open()

    def _prove(self, token: str) -> Effects:
        yield from self._perform(Authenticate(token))
        if not isinstance(self._outcome, Done) or self._outcome.detail == self._user:
            return
        self._user = self._display.user = self._outcome.detail
        for name in list(self._display.rooms):  # of the user that it was before
            yield from self._leave(name)
        self._outcome = None

    def _say(self, message: Message, raw: dict[str, Any]) -> Effects:
        """Begin a turn; it takes the place of the one that runs."""
        words = message.words()
        if not words.text.strip() and not words.attachments:
            raise Invalid("invalid_user_message_content", words.where, "empty or missing")
        place = self._place_in(raw)
        yield from self._enter_for(message, place, interrupts=True)
        if self._refusal:
            yield from self._complain_of_refusal(place, ends=True)
            return
        room = self._display.room(place.conversation)
        room.streams = message.streams
        entry = self._entry(message, raw, words)
        superseded = room.supersede()
        yield from self._keep(Say(room.name, entry, interrupts=True), room)
        if self._refusal:
            for answering in superseded:
                yield from self._display.resume(answering)
            yield from self._complain_of_refusal(place, ends=True)

    def _answer(self, message: Message, raw: dict[str, Any]) -> Effects:
        """Answer a prompt of the conversation."""
        words = message.words()
        place = self._place_in(raw)
        if not message.conversation_id and message.parent_id:  # then the prompt tells
            place = self._display.place_of_prompt(place, message.parent_id)
        yield from self._enter_for(message, place)
        if not self._refusal:
            room = self._display.room(place.conversation)
            prompt = room.prompts.find(message.parent_id)
            values = values_of(prompt, words)
            answer = Answer(room.name, prompt.id, values, self._entry(message, raw, words))
            answer.entry.prompt_id = prompt.id
            yield from self._keep(answer, room)
        yield from self._complain_of_refusal(place)
        if self._refusal:
            yield from self._display.ask_again(place, message.parent_id)

    def _repeat(self, message: Message, raw: dict[str, Any]) -> Effects:
        """Keep what the gateway itself would send, as something that this user has posted."""
        text = messages.system_text(raw)
        if not text:
            return
        place = self._place_in(raw)
        yield from self._enter_for(message, place)
        if not self._refusal:
            room = self._display.room(place.conversation)
            entry = self._entry(message, raw, Words((text,), (), "content"))
            entry.kind = Kind.POST
            yield from self._keep(Post(room.name, entry), room)
        yield from self._complain_of_refusal(place)

    def _entry(self, message: Message, raw: dict[str, Any], words: Words) -> Entry:
        entry = messages.entry_of(message, raw, words)
        entry.author = Author(self._user, name=message.author_name)
        entry.dialect = self.prefix
        return entry

    # Effects, one after the other

    def _perform(self, request: Request) -> Effects:
        self._outcome = None
        yield request

    @property
    def _refusal(self) -> Refused | None:
        return self._outcome if isinstance(self._outcome, Refused) else None

    def _keep(self, request: Say | Post | Answer, room: Room) -> Effects:
        """Keep an entry, under a new id if its own is taken: clients may repeat theirs."""
        entry, client_id = request.entry, request.entry.id
        room.call(entry.id, client_id)
        yield from self._perform(request)
        if isinstance(self._outcome, Done) and self._outcome.is_duplicate:
            entry.id = self.hello.new_id()
            room.call(entry.id, client_id)
            yield from self._perform(request)

    def _enter_for(self, message: Message, place: Place, *, interrupts: bool = False) -> Effects:
        """Enter the conversation of a message, as whom its credentials prove."""
        self._outcome = None
        if not self._user and message.token:
            yield from self._prove(message.token)
        if not self._refusal:
            yield from self._enter(place.conversation, interrupts=interrupts)

    def _enter(self, name: str, *, interrupts: bool = False) -> Effects:
        self._outcome = None
        rooms = self._display.rooms
        if name in rooms:
            rooms[name] = rooms.pop(name)  # the one that was used last
            return
        while len(rooms) >= _MAX_ROOMS:
            yield from self._leave(next(iter(rooms)))
        # What is about to be cancelled is not shown.
        self._display.entering = name if interrupts else ""
        # A client does not say what it has seen: all of one user count as one.
        yield from self._perform(Enter(name, Author(self._user), client=self.prefix))
        self._display.entering = ""

    def _leave(self, name: str) -> Effects:
        del self._display.rooms[name]
        yield Leave(name)

    def _place_in(self, raw: dict[str, Any]) -> Place:
        """Return where a frame belongs; what cannot be read in it counts as missing."""
        thread = messages.id_in(raw, "thread_id")
        named = messages.id_in(raw, "conversation_id") or self._named
        return Place(named or thread or self._home, messages.id_in(raw, "id"), thread)

    # What is wrong

    def _complain_of_refusal(self, place: Place, *, ends: bool = False) -> Effects:
        refusal, frames = self._refusal, self._display.frames
        if refusal is None:
            return
        about = code_of_rule(refusal.rule), refusal.reason, details_of(refusal)
        if ends:
            shown = [*frames.failure(place, *about), frames.complete(place)]
        else:
            shown = [frames.error(place, *about)]
        yield from map(Send, shown)

    def _complain(self, place: Place, fault: Invalid, ends: bool) -> Effects:
        """Send what is wrong; a message that wants an answer gets the end of it, too."""
        frames = self._display.frames
        yield Send(frames.error(place, fault.code, fault.message, fault.details))
        if ends:
            yield Send(frames.complete(place))
