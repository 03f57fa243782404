"""Performing: what each effect of a dialect does.

| effect | in |
| --- | --- |
| `Authenticate`, `Enter`, `Leave`, `Invite`, `Expel` | `entering` |
| `Say`, `Answer`, `Cancel`, `Post`, `Amend` | `speaking` |
| `ChangeTask`, `ShareContext`, `Notify`, `MarkRead`, `AskReaders`, `AskHistory` | `sharing` |

A request is checked first; what it changes is one step of its conversation: first the store, then,
without waiting, the room, then `Done`, then what all clients are shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from busd.gateway import entering, sharing, speaking
from busd.gateway.effects import (
    Amend,
    Answer,
    AskHistory,
    AskReaders,
    Authenticate,
    Cancel,
    ChangeTask,
    Enter,
    Expel,
    Invite,
    Leave,
    MarkRead,
    Notify,
    Post,
    Request,
    Say,
    ShareContext,
)
from busd.gateway.refusal import Refusal, refusal_of
from busd.gateway.stored import StoreFailed, StoreRefusal

if TYPE_CHECKING:
    from busd.gateway.room import Room
    from busd.gateway.session import Session

MAX_NAME_CHARACTERS = 256

# Any: each function takes the request that stands before it.
_IN_ROOM: dict[type[Any], Callable[[Room, Session, Any], Awaitable[None]]] = {
    Leave: entering.leave,
    Invite: entering.invite,
    Expel: entering.expel,
    Say: speaking.say,
    Answer: speaking.answer,
    Cancel: speaking.cancel,
    Post: speaking.post,
    Amend: speaking.amend,
    ChangeTask: sharing.change_task,
    ShareContext: sharing.share_context,
    MarkRead: sharing.mark_read,
    AskReaders: sharing.ask_readers,
    AskHistory: sharing.ask_history,
}


async def perform(session: Session, request: Request) -> None:
    """Perform a request and show `Done`; raise Refusal if nothing of it is done."""
    try:
        if isinstance(request, Authenticate):
            entering.authenticate(session, request)
        elif isinstance(request, Enter):
            await entering.enter(session, request)
        else:
            room = session.room_of(request.conversation)
            await room.order.run(partial(_perform_in, room, session, request))
    except (StoreRefusal, StoreFailed) as problem:
        raise refusal_of(problem) from None


async def _perform_in(room: Room, session: Session, request: Any) -> None:
    """Perform a request as a step, unless the client has left meanwhile, or was expelled."""
    if session not in room.present:
        raise Refusal("conversation", "enter this conversation first", detail=room.name)
    await _IN_ROOM[type(request)](room, session, request)


def notify(session: Session, effect: Notify) -> None:
    """Show a notification to the others, now; one that does not fit is dropped."""
    room = session.rooms.get(effect.conversation)
    if session.user and room is not None and session in room.present:
        sharing.notify(room, session, effect)
