"""A client of the dialect TKR without a socket: frames in, and what comes of them out.

It stands for the host, too: it performs each request at once, with the outcome that the test wants.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec

from busd.gateway import (
    Acknowledge,
    Amend,
    Answer,
    Author,
    Close,
    Done,
    Effects,
    Emit,
    Enter,
    Entered,
    Entry,
    Event,
    Hello,
    Kind,
    Notify,
    Post,
    Prompt,
    Refused,
    Request,
    Say,
    Send,
    SocketFrame,
    Task,
    Turn,
)
from busd_plugins.tkr.dialect import Tkr

NOW = "2026-03-04T05:06:07.890Z"
ACK_OF_NOTHING = "no ack"
Refuse = Callable[[Request], Refused | None]


class Client:
    """A client, connected; `frames` has all that it was sent: (event, data)."""

    def __init__(
        self,
        namespace: str = "/",
        *,
        user: str = "ann",
        refuse: Refuse | None = None,
        entered: Entered | None = None,
        **query: str,
    ) -> None:
        self.frames: list[tuple[str, Any]] = []
        self.requests: list[Request | Notify] = []
        self.ack: Any = ACK_OF_NOTHING
        self.refuse = refuse
        self.entered = entered
        self._frame: SocketFrame | None = None
        self._ids = count(1)
        self._numbers = count(1)
        hello = Hello(
            query=query,
            namespace=namespace,
            user=user,
            socket_id="socket-1",
            new_id=lambda: f"id-{next(self._ids)}",
            now=lambda: NOW,
            sign=lambda url: url,
        )
        self.dialect = Tkr(hello)
        self._perform(self.dialect.open())
        self.opened_with = self.take()

    def send(self, event: str, data: Any = None, *, wants_ack: bool = True) -> Any:
        """Send an event; returns the ack."""
        self.ack = ACK_OF_NOTHING
        frame = SocketFrame(self.dialect.hello.namespace, event, data, wants_ack)
        self._frame = frame
        self._perform(self.dialect.receive(frame))
        return self.ack

    def say(self, **message: Any) -> Any:
        """Send the event `message`; returns the ack."""
        return self.send("message", message)

    def show(self, event: Event) -> list[tuple[str, Any]]:
        """Show an event of the gateway; returns the frames that it becomes."""
        before = len(self.frames)
        self._perform(self.dialect.show(event))
        return self.frames[before:]

    def messages(self, event: Event) -> list[Any]:
        """Show an event; returns the data of the events `message` that it becomes."""
        return [data for name, data in self.show(event) if name == "message"]

    def take(self, event: str = "") -> list[Any]:
        """Return all frames so far, or the data of those of one event, and forget all."""
        frames, self.frames = self.frames, []
        return [data for name, data in frames if name == event] if event else list(frames)

    def requested(self, kind: type[Any]) -> Any:
        """Return the one request of a kind, and forget all."""
        found = [each for each in self.requests if isinstance(each, kind)]
        assert len(found) == 1, self.requests
        self.requests.clear()
        return found[0]

    def error(self) -> Any:
        """Return the one event `error`, and forget all frames."""
        [said] = self.take("error")
        return said

    def is_alive(self) -> bool:
        """Return whether the client is served like any other."""
        self.requests.clear()
        self.take()
        says = {"id": "alive", "session_id": "s1", "type": "text", "content": "still here"}
        ack = self.send("message", says)
        is_said = any(isinstance(each, Say | Answer) for each in self.requests)
        return is_said and "error" not in [name for name, _ in self.take()] and bool(ack)

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Emit):
                # What leaves has to be JSON, and is compared as the client reads it.
                self.frames.append((effect.event, msgspec.json.decode(encoded(effect.data))))
            elif isinstance(effect, Acknowledge):
                assert effect.frame is self._frame
                assert self.ack is ACK_OF_NOTHING, "acknowledged twice"
                self.ack = msgspec.json.decode(encoded(effect.data))
            elif isinstance(effect, Notify):
                self.requests.append(effect)
            else:
                assert not isinstance(effect, Send | Close), effect
                self.requests.append(effect)
                self._outcome(effect)

    def _outcome(self, request: Request) -> None:
        refused = self.refuse(request) if self.refuse else None
        if refused is not None:
            refused.request = request
            self._perform(self.dialect.show(refused))
            return
        if isinstance(request, Enter):
            entered = self.entered or an_entered(request.conversation)
            self._perform(self.dialect.show(entered))
        entry = None
        if isinstance(request, Say | Post | Amend | Answer):
            entry = msgspec.structs.replace(request.entry, number=next(self._numbers))
        self._perform(self.dialect.show(Done(request, entry)))


def encoded(data: Any) -> bytes:
    """Return what leaves as JSON; it has no numbers or objects that JSON lacks."""
    return msgspec.json.encode(data)


def refusing(rule: str, kind: type[Any], reason: str = "not now", detail: str = "") -> Refuse:
    """Return what refuses all requests of a kind."""

    def refuse(request: Request) -> Refused | None:
        if not isinstance(request, kind):
            return None
        return Refused(request, rule, reason, detail=detail)

    return refuse


def an_entered(
    session: str = "s1",
    entries: list[Entry] | None = None,
    turns: list[Turn] | None = None,
    prompts: list[Prompt] | None = None,
    tasks: list[Task] | None = None,
) -> Entered:
    return Entered(
        conversation=session,
        is_new=False,
        session_id="01hgateway",
        present=[],
        entries=entries or [],
        turns=turns or [],
        prompts=prompts or [],
        tasks=tasks or [],
    )


def a_turn(agent: str = "phil", text: str = "", author: Author | None = None) -> Turn:
    return Turn(
        id="msg_1",
        agent=Author(agent, "agent"),
        author=author or Author("ann"),
        timestamp="2026-03-04T05:06:00.000Z",
        text=text,
        reply_id="reply-1",
    )


def a_reply(text: str = "sunny", agent: str = "phil") -> Entry:
    return Entry(
        text=text,
        id="reply-1",
        author=Author(agent, "agent"),
        timestamp="2026-03-04T05:06:09.000Z",
        kind=Kind.REPLY,
        turn="msg_1",
        number=2,
    )
