"""A session: one client from its connection to its end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import anyio
import msgspec
import structlog

from busd.gateway.dialect import Dialect
from busd.gateway.effects import Acknowledge, Close, Effects, Emit, Frame, Notify, Request, Send
from busd.gateway.events import Event, Refused
from busd.gateway.order import StepFailed
from busd.gateway.performing import notify, perform
from busd.gateway.refusal import Refusal

if TYPE_CHECKING:
    from busd.gateway.hub import Hub
    from busd.gateway.room import Room

log = structlog.get_logger("busd.gateway")

Output = Send | Emit | Acknowledge | Close
# Takes what a client is to get; never waits and never raises: the host queues it, bounded.
SendOutput = Callable[[Output], None]
_OUTPUTS = (Send, Emit, Acknowledge, Close)
_INTERNAL_ERROR = 1011


class KnownUser(msgspec.Struct, frozen=True):
    """Who a token belongs to."""

    name: str
    is_owner: bool = False


# Return whose token it is, or None; the host counts failures per address, and may refuse by them.
FindUser = Callable[[str], KnownUser | None]


class Session:
    """One client: runs its dialect and performs its effects.

    The host calls `open` once, then `receive` for each frame, one after the other, and `close` at
    the end. A call that is cancelled leaves nothing half done.
    """

    def __init__(
        self,
        hub: Hub,
        dialect: Dialect,
        send: SendOutput,
        user: str,
        *,
        is_owner: bool,
        find_user: FindUser | None,
    ) -> None:
        self.hub = hub
        self.dialect = dialect
        self.user = user  # "" until the client has proved who it is
        self.is_owner = is_owner
        self.find_user = find_user
        self.rooms: dict[str, Room] = {}  # that it has entered, by name
        self.is_closed = False
        self._send = send

    def __repr__(self) -> str:
        return f"<session of {self.user or 'nobody'} in {self.dialect.prefix}>"

    # For the host

    async def open(self) -> None:
        """Open the dialect; return when the effects of that are performed."""
        await self._perform_all(self.dialect.open())

    async def receive(self, frame: Frame) -> None:
        """Pass a frame to the dialect; return when its effects are performed."""
        for room in self.rooms.values():
            room.note_heard(self)
        await self._perform_all(self.dialect.receive(frame))

    def refuse(self, rule: str, reason: str) -> None:
        """Show the client that a frame was not passed on, or why the connection is closed."""
        self._put_out(lambda: self.dialect.refuse(rule, reason))

    async def close(self) -> None:
        """Leave all conversations. Nothing is sent to the client from now on. May be repeated."""
        self._end()
        self.hub.sessions.discard(self)
        rooms = list(self.rooms.values())
        self.rooms.clear()
        for room in rooms:
            self.hub.leave_soon(room, self)

    # Effects

    async def _perform_all(self, effects: Effects) -> None:
        """Perform effects, each before the next one is taken from the generator."""
        try:
            for effect in effects:
                if self.is_closed:
                    return
                if isinstance(effect, _OUTPUTS):
                    self._send(effect)
                elif isinstance(effect, Notify):
                    notify(self, effect)
                else:
                    await self._perform(effect)
        except StepFailed:
            self.fail()
        except anyio.get_cancelled_exc_class():
            raise
        except Exception:
            log.exception("dialect.failed", dialect=self.dialect.prefix)
            self.fail()
        finally:
            if isinstance(effects, Generator):
                effects.close()

    async def _perform(self, request: Request) -> None:
        try:
            await perform(self, request)
        except Refusal as refusal:
            self.show(
                Refused(
                    request, refusal.rule, refusal.reason, refusal.retry_seconds, refusal.detail
                )
            )

    # Events

    def show(self, event: Event) -> None:
        """Show an event to the dialect, and send the client what comes of it."""
        self._put_out(lambda: self.dialect.show(event))

    def _put_out(self, make: Callable[[], Effects]) -> None:
        if self.is_closed:
            return
        try:
            for effect in make():
                if not isinstance(effect, _OUTPUTS):
                    raise TypeError(f"show may not yield {type(effect).__name__}")
                self._send(effect)
        except Exception:
            log.exception("dialect.failed", dialect=self.dialect.prefix)
            self.fail()

    def fail(self) -> None:
        """Close the connection because of a fault of ours."""
        if not self.is_closed:
            self._send(Close("internal error", _INTERNAL_ERROR))
            self._end()

    def _end(self) -> None:
        self.is_closed = True
        for room in self.rooms.values():
            room.note_closed(self)

    def room_of(self, conversation: str) -> Room:
        """Return a conversation that the client has entered; raise Refusal."""
        if not self.user:
            raise Refusal("unauthenticated", "authenticate first")
        room = self.rooms.get(conversation)
        if room is None:
            raise Refusal(
                "conversation", "enter this conversation first", detail=conversation[:200]
            )
        return room
