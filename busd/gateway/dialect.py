"""The contract of dialects: what a dialect is, what it may ask the host for, and what it is shown.

A dialect translates between the frames of one kind of client and the conversations of the gateway.
It does no I/O: frames and events go in, effects come out.

    @plugin.gateway("/ws/shout")
    class Shout(Dialect):
        prefix = "shout"

        def receive(self, frame: Frame) -> Effects:
            yield Enter("lobby")
            yield Say("lobby", Entry(text=str(frame).lower()))

        def show(self, event: Event) -> Effects:
            if isinstance(event, Replied):
                yield Send(event.entry.text.upper())

There is one object per connection. The host calls `open` first, then `receive` for each frame, and
`show` for each event of the conversations that the client has entered. With `first_frame_seconds`,
a frame that comes so soon is received before `open` is called. It performs the effects of a
call in order, and reads the next frame when they are done. `Done` or `Refused` is shown for each
effect of `open` and `receive` but `Send`, `Emit`, `Acknowledge`, `Close` and `Notify`; its
`request` is the object that was yielded.

Effects are lazy: the next one is taken from the generator when the one before it was performed and
its `Done` or `Refused` was shown. So `receive` may go on by what `show` has noted:

    yield Enter("lobby")
    if not self.is_refused:
        yield Say("lobby", entry)

What a request causes is shown in this order: the answer to a question (`Entered`, `History`,
`Readers`), `TurnEnded` of the turns that it interrupts, `Done`, and then everything else, to all
clients in the conversation, this one included: `Said`, `TurnBegan` …. A turn is shown as
`TurnBegan`; any number of `Delta`, `Stepped`, `Prompted` and `PromptClosed`; `Replied` or
`TurnFailed`, unless it was cancelled; and `TurnEnded`. Its events have `is_own` for the client that
began it; if that one is gone, for those whose author is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import msgspec

from busd.gateway.effects import Effects, Frame
from busd.gateway.events import Event


class Hello(msgspec.Struct, kw_only=True):
    """What is known of a connection when it is opened."""

    path: str = "/"
    room: str = ""  # the part of the path that the route leaves open: /ws/messaging/<room>/
    query: dict[str, str] = {}  # without `token`
    namespace: str = ""  # of Socket.IO
    user: str = ""  # who the client has proved to be; "": not yet (see `Authenticate`)
    is_owner: bool = False  # it may use any author's id
    socket_id: str = ""
    new_id: Callable[[], str]  # a new id, a UUID in text form
    now: Callable[[], str]  # the time in the format of payloads: RFC 3339, UTC, ending in Z
    base: str = ""  # what the links of this client begin with: http://HOST
    sign: Callable[[str], str]  # a link to a URL that expires; "" if the URL is no http(s) URL


class MessageKind(msgspec.Struct, frozen=True):
    """A kind of message of a dialect, for the AsyncAPI document; nothing else reads it."""

    name: str
    direction: Literal["receive", "send"]  # as the gateway sees it
    struct: Any  # a Struct whose fields are the members, with a docstring; or `str` for plain text
    summary: str = ""  # default: the first line of the docstring
    event: str = ""  # of Socket.IO
    namespaces: tuple[str, ...] = ()  # of Socket.IO; (): all of the dialect


class Dialect:
    """One connection of a client; a subclass is registered with `@plugin.gateway(path)`."""

    prefix: ClassVar[str]  # of the addresses of its conversations; also their `channel`, by default
    channel: ClassVar[str] = ""
    # Clients of Socket.IO, in these namespaces; empty: a WebSocket with text frames.
    namespaces: ClassVar[tuple[str, ...]] = ()
    max_frame_bytes: ClassVar[int] = 1024 * 1024
    # How long `open` waits for a frame that may come first; of a WebSocket only.
    first_frame_seconds: ClassVar[float] = 0.0
    messages: ClassVar[tuple[MessageKind, ...]] = ()

    def __init__(self, hello: Hello) -> None:
        self.hello = hello

    def open(self) -> Effects:
        """The connection was accepted, see `first_frame_seconds`."""
        yield from ()

    def receive(self, frame: Frame) -> Effects:
        """The client has sent a frame. Raise nothing: what is wrong with it is an answer."""
        yield from ()

    def show(self, event: Event) -> Effects:
        """Something has happened. Only `Send`, `Emit`, `Acknowledge` and `Close` may come out."""
        yield from ()

    def refuse(self, rule: str, reason: str) -> Effects:
        """The host closes the connection, or did not pass a frame on: it was too large or one of
        too many (`rule`: "limit"), was not text ("invalid"), or there is no bus ("busy")."""
        yield from ()
