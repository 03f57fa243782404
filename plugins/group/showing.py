"""What a client is shown of its room."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from busd.gateway import (
    Amended,
    Author,
    ContextShared,
    Delta,
    Entered,
    Entry,
    Event,
    History,
    Notified,
    Posted,
    PromptClosed,
    Prompted,
    Read,
    Readers,
    Replied,
    Said,
    Stepped,
    TaskChanged,
    Turn,
    TurnBegan,
    TurnEnd,
    TurnEnded,
    TurnFailed,
)
from busd_plugins.group.frames import Frames
from busd_plugins.group.messages import Json
from busd_plugins.group.room import PREFIX, Room
from busd_plugins.group.turn_frames import TurnFrames

_decode = msgspec.json.decode
SERVER = {
    "version": "1.0.0",
    "features": ["typing_indicators", "read_receipts", "history", "streaming"],
}
_MIN_NEWS = 16  # characters


class Showing:
    """Makes the frames for the events that one client is shown."""

    def __init__(self, room: Room, frames: Frames, author: Callable[[], Author]) -> None:
        self._room = room
        self._frames = frames
        self._turns = TurnFrames(frames)
        self._author = author
        self.is_streaming = False  # the client wants answers while they are written
        self._shown: dict[tuple[str, str], int] = {}  # characters of the answers so far

    def frames_of(self, event: Event) -> Iterable[Json]:
        """Return the frames for an event, in their order."""
        match event:
            case Entered():
                yield from self._entered(event)
            case History():
                yield from self._history(event)
            case Said() | Posted() | Amended() | Replied():
                yield self._frames.of_entry(event.entry, self._room.tasks)
            case TaskChanged():
                # A message of this format stands in the room itself.
                if event.dialect != PREFIX:
                    yield self._turns.task(event)
            case _:
                yield from self._of_turn(event)

    def _of_turn(self, event: Event) -> Iterable[Json]:
        match event:
            case TurnBegan():
                yield self._turns.thinking(event.turn)
            case Delta():
                yield from self._delta(event.turn)
            case Stepped():
                yield self._turns.step(event.turn, event.step)
            case Prompted():
                yield self._turns.question(event.prompt, event.turn)
            case PromptClosed():
                if event.prompt.input_type != "notification":
                    yield self._turns.question_closed(event.prompt, event.how)
            case TurnFailed():
                yield self._turns.failed(event)
            case TurnEnded():
                self._shown.pop(_key(event.turn), None)
                if event.how is TurnEnd.CANCELLED:
                    yield self._turns.cancelled(event.turn)
            case _:
                yield from self._notice(event)

    def _notice(self, event: Event) -> Iterable[Json]:
        match event:
            case Notified(kind="typing"):
                yield self._typing(event)
            case Read() if not event.is_own:
                payload = self._frames.in_room(message_ids=list(event.ids))
                yield self._frames.make("read_receipt", payload, sender=event.by)
            case Readers():
                yield self._readers(event)
            case ContextShared():
                yield self._context(event)
            case _:
                pass

    def _entered(self, event: Entered) -> Iterable[Json]:
        author = self._author()
        payload: Json = {
            "session_id": event.session_id,
            "server_info": SERVER,
            "user_info": {
                "id": author.id,
                "name": author.name or author.id,
                "permissions": ["read", "write", "create_group"],
            },
        }
        yield self._acknowledged(payload)
        yield from map(self._past, reversed(event.entries))
        if self._room.is_repeated:
            return
        for turn in event.turns:
            yield self._turns.thinking(turn, turn.text if self.is_streaming else "")
        yield from (self._turns.question(*found) for found in self._room.questions.values())

    def _acknowledged(self, payload: Json) -> Json:
        return self._frames.make("connect_ack", payload, metadata={"protocol_version": "1.0"})

    def _history(self, event: History) -> Iterable[Json]:
        yield from map(self._past, reversed(event.entries))
        history: Json = {"count": len(event.entries), "has_more": event.has_more}
        if event.entries:
            history["before"] = event.entries[0].number
        yield self._acknowledged({"session_id": self._room.session_id, "history": history})

    def _past(self, entry: Entry) -> Json:
        return self._frames.of_entry(entry, self._room.tasks, is_past=True)

    def _delta(self, turn: Turn) -> Iterable[Json]:
        """Show the text so far whenever it has grown by a quarter: as a whole it is linear."""
        shown = self._shown.get(_key(turn), 0)
        if self.is_streaming and len(turn.text) - shown >= max(_MIN_NEWS, shown // 4):
            self._shown[_key(turn)] = len(turn.text)
            yield self._turns.thinking(turn, turn.text)

    def _typing(self, event: Notified) -> Json:
        data: Any = _decode(event.data)
        given = data if isinstance(data, dict) else {}
        is_typing = given.get("is_typing", True) is not False
        status = {"is_typing": is_typing, "status": "typing" if is_typing else "stopped"}
        payload = {**status, **given, "group_id": self._frames.room}
        return self._frames.make("typing", payload, sender=event.by)

    def _readers(self, event: Readers) -> Json:
        readers = {
            entry: [{"id": reader, "read_at": time} for reader, time in readers.items()]
            for entry, readers in event.readers.items()
        }
        payload = self._frames.in_room(message_ids=list(event.readers), readers=readers)
        return self._frames.make("read_receipt", payload)

    def _context(self, event: ContextShared) -> Json:
        payload = self._frames.in_room(
            text="共享上下文已更新",
            context_id=event.context_id,
            context_data=_decode(event.data),
            target_agents=list(event.agents),
        )
        return self._frames.make("settings", payload, sender=event.by)


def _key(turn: Turn) -> tuple[str, str]:
    return turn.id, turn.reply_id
