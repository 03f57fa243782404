"""What one client sees of a conversation: answers that come in, and prompts that wait."""

from __future__ import annotations

import msgspec

from busd.gateway import Author, Entry, Turn
from busd_plugins.agentiq.content import text_with_attachments
from busd_plugins.agentiq.frames import Frame, Place
from busd_plugins.agentiq.interactions import Prompts
from busd_plugins.agentiq.steps import Steps

_MAX_STREAMED = 1024 * 1024  # characters; what comes after them is sent with the reply
_MAX_ALIASES = 256


class Answering(msgspec.Struct):
    """An answer that comes in."""

    turn: Turn
    place: Place
    streams: bool  # piece by piece
    # Somebody else's, beside one of this client's own: a client like the toolkit's web UI takes any
    # text and any end for those of its own turn, so that this one is shown as a note.
    is_aside: bool
    # What was sent piece by piece, within the text of the turn: all clients share that one.
    streamed: slice = slice(0, 0)
    steps: Steps = msgspec.field(default_factory=Steps)
    is_bare: bool = True  # neither text nor step was shown
    # A new message of this client is about to cancel it: what comes now is held back. Clients take
    # the text and the end of any answer for those of the new one.
    is_superseded: bool = False
    held: list[Frame] = []

    def takes(self, text: str) -> bool:
        """Return whether a piece is to be sent now."""
        if not text or not self.streams or self.is_aside:
            return False
        end = len(self.turn.text)  # it has the piece already
        start = self.streamed.start if self.streamed.stop else end - len(text)
        if end - start > _MAX_STREAMED:
            self.streams = False
            return False
        self.streamed = slice(start, end)
        return True

    def rest_of(self, entry: Entry) -> str:
        """Return what of the final words was not sent piece by piece."""
        text, sent = text_with_attachments(entry), self.turn.text[self.streamed]
        for known in (sent, sent.rstrip()):
            if text.startswith(known):
                return text[len(known) :]
        if sent.strip() == text.strip():
            return ""
        return f"\n\n{text}"  # other words than announced


class Room:
    """A conversation that a client has entered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.prompts = Prompts()
        self.streams = True  # as the client's last message wanted it
        self._answers: dict[tuple[str, str], Answering] = {}
        self._aliases: dict[str, str] = {}  # a client's own id by that of its entry, if they differ

    def call(self, entry_id: str, client_id: str) -> None:
        """Remember by which id the client knows its message."""
        if client_id and client_id != entry_id:
            self._aliases[entry_id] = client_id
            while len(self._aliases) > _MAX_ALIASES:
                del self._aliases[next(iter(self._aliases))]

    def place(self, parent: str = "", thread: str = "") -> Place:
        return Place(self.name, self._aliases.get(parent, parent), thread)

    def answering(self, turn: Turn, *, is_own: bool) -> Answering:
        """Return the answer that an event belongs to, a new one if it is the first of its turn."""
        found = self.find(turn)
        if found is None:
            is_aside = not is_own and self.has_answers
            place = self.place(turn.id, turn.thread_id)
            found = Answering(turn, place, self.streams, is_aside)
            self._answers[_key(turn)] = found
        found.turn = turn
        return found

    def find(self, turn: Turn) -> Answering | None:
        key = _key(turn)
        unnamed = (turn.id, "")  # before its agent was known
        if key not in self._answers and unnamed in self._answers:
            self._answers[key] = self._answers.pop(unnamed)
        return self._answers.get(key)

    def end(self, turn: Turn) -> None:
        self._answers.pop(_key(turn), None)

    @property
    def has_answers(self) -> bool:
        """Whether the client waits for the end of an answer."""
        return any(not each.is_aside for each in self._answers.values())

    def supersede(self) -> list[Answering]:
        """Mark the answers that come in now: a new message of this client cancels them."""
        for each in self._answers.values():
            each.is_superseded = True
        return list(self._answers.values())


def _key(turn: Turn) -> tuple[str, str]:
    return turn.id, turn.agent.id


def name_of(author: Author) -> str:
    return author.name or author.id or author.type
