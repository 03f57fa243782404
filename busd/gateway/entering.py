"""Entering: who a client is, and which conversations it is in."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import structlog
from ulid import ULID

from busd.gateway.conversation import Author, Entry, Task
from busd.gateway.effects import Authenticate, Enter, Expel, Invite, Leave
from busd.gateway.events import Arrived, Departed, Done, Entered
from busd.gateway.identity import OWNER
from busd.gateway.refusal import Refusal
from busd.gateway.room import Presence
from busd.gateway.speakers import check_text, claim_author, named_author
from busd.gateway.stored import Conversation

if TYPE_CHECKING:
    from busd.gateway.room import Room
    from busd.gateway.session import Session
    from busd.gateway.store import Store

log = structlog.get_logger("busd.gateway")

MAX_ENTERED = 256  # conversations of one client
MAX_ENTRIES = 500  # in one answer
PAGE_BYTES = 2 * 1024 * 1024


def authenticate(session: Session, request: Authenticate) -> None:
    """Find out who a client is. The token is not kept."""
    known = session.find_user(request.token) if session.find_user else None
    if known is None:
        log.info("client.unauthenticated", dialect=session.dialect.prefix)
        raise Refusal("authentication", "the token is unknown or was revoked")
    if not session.rooms or not session.user:
        session.user, session.is_owner = known.name, known.is_owner
        session.dialect.hello.user = known.name
        session.dialect.hello.is_owner = known.is_owner
    elif known.name != session.user and not session.is_owner:
        raise Refusal("authentication", f"authenticated as {session.user} already; connect again")
    session.show(Done(request, detail=known.name))


class Past(msgspec.Struct):
    """What a client is shown of a conversation when it enters."""

    entries: list[Entry]
    tasks: list[Task]
    members: list[str]


async def enter(session: Session, request: Enter) -> None:
    """Find or create the conversation, hold it, and enter it."""
    if not session.user:
        raise Refusal("unauthenticated", "authenticate first")
    check_text("conversation", request.conversation)
    check_text("client", request.client, is_optional=True)
    if len(session.rooms) >= MAX_ENTERED and request.conversation not in session.rooms:
        raise Refusal("limit", f"a client enters at most {MAX_ENTERED} conversations")
    hub = session.hub
    session_id = str(ULID()).lower()
    new = Conversation(
        session_id=session_id,
        address=f"{session.dialect.prefix}:{session_id}",
        prefix=session.dialect.prefix,
        channel=session.dialect.channel or session.dialect.prefix,
        user=session.user,
        name=request.conversation,
        is_room=request.is_room,
    )
    is_open = hub.settings.rooms == "open"
    found = await hub.store.run(partial(_find, new=new, held=hub.rooms, is_open=is_open))
    if request.creators and found.user not in (OWNER, *request.creators):
        reason = f"this room is of {' and '.join(request.creators)}, and {found.user} has made it"
        raise Refusal("member", reason, detail=request.conversation)
    room = hub.hold(found)
    await room.order.run(partial(_enter, room, session, request, found.session_id == session_id))


def _find(store: Store, new: Conversation, held: Collection[str], is_open: bool) -> Conversation:
    """Return what a name means to a user; a new conversation if it means nothing yet."""
    found = store.find(new.user, new.name)
    if found is not None and (found.is_room or not new.is_room):
        return found
    room = store.find_room(new.name) if new.is_room else None
    if room is None and found is not None:
        return store.make_room(found.session_id)  # its user goes on there with others
    if room is None:
        return store.create(new, held)
    if not is_open:
        raise Refusal("member", "this room has members, and you are not one of them")
    store.add_member(room.session_id, new.user)
    return room


async def _enter(room: Room, session: Session, request: Enter, is_new: bool) -> None:
    """Enter a conversation that is held; a step."""
    await room.load()
    author = named_author(request.author or Author(""), session)
    presence = Presence(author, f"{session.user}\n{request.client}" if request.client else "")
    heard = _heard_by_namesake(room, session, presence.client)
    past = await room.hub.store.run(
        lambda store: _read(store, room, session, request, presence, heard)
    )
    if session.is_closed:
        return  # while it entered
    before = room.present.get(session)
    presence.heard = room.number
    other = session.rooms.get(room.name)
    if other is not None and other is not room:
        room.hub.leave_soon(other, session)  # its user was invited to a room of this name since
    room.present[session] = presence
    session.rooms[room.name] = room
    session.show(
        Entered(
            conversation=room.name,
            is_new=is_new,
            session_id=room.session_id,
            present=room.authors(),
            entries=past.entries,
            turns=[turn.shown for turn in room.turns.values()],
            prompts=room.open_prompts(),
            tasks=past.tasks,
            members=past.members,
        )
    )
    session.show(Done(request))
    room.has_moved = room.has_moved or bool(presence.client)
    show_change(room, session, before.author if before else None, author)


def show_change(room: Room, session: Session, before: Author | None, author: Author) -> None:
    """Show the others who has come, also if it was here under another name."""
    if before is not None and before.id != author.id and before not in room.authors():
        room.show_presence(Departed(room.name, before), session)
    if before is None or before.id != author.id:
        room.show_presence(Arrived(room.name, author), session)


def _heard_by_namesake(room: Room, session: Session, client: str) -> int | None:
    """Return what a client was shown that is present by its name already.

    If that is another connection, it may be lost without anybody knowing yet: what counts is when
    it was last heard.
    """
    if client:
        for other, presence in reversed(room.present.items()):
            if presence.client == client and other is session:
                return room.number
            if presence.client == client:
                return presence.heard if presence.until is None else presence.until
    return None


def _read(
    store: Store,
    room: Room,
    session: Session,
    request: Enter,
    presence: Presence,
    heard: int | None,
) -> Past:
    """Read what the client is shown; its author's id is its user's from now on."""
    this = room.session_id
    if request.author is not None:  # else it may say later who it is
        claim_author(store, room, session, presence.author)
    store.touch(this)
    return Past(
        _entries(store, room, request, presence.client, heard),
        store.tasks(this, PAGE_BYTES),
        store.members(this) if room.conversation.is_room else [],
    )


def _entries(
    store: Store, room: Room, request: Enter, client: str, heard: int | None
) -> list[Entry]:
    this = room.session_id
    last = min(max(request.last, 0), MAX_ENTRIES)
    if request.after:
        return store.page(
            this, after=request.after, last=last or MAX_ENTRIES, max_bytes=PAGE_BYTES
        ).entries
    if client and not last:
        since = store.cursor(this, client) if heard is None else heard
        if since is None:  # its first time: what comes from now on is not to be missed
            store.move_cursor(this, client, room.number)
            return []
        return store.page(this, since=since, last=MAX_ENTRIES, max_bytes=PAGE_BYTES).entries
    return store.page(this, last=last, max_bytes=PAGE_BYTES).entries if last else []


async def leave(room: Room, session: Session, request: Leave) -> None:
    """Leave a conversation; a step."""
    await depart(room, session)
    session.show(Done(request))


async def depart(room: Room, session: Session) -> None:
    """Remove a client that leaves, or has gone; a step."""
    presence = room.present.pop(session, None)
    if session.rooms.get(room.name) is room:
        del session.rooms[room.name]
    if presence is None:
        return
    room.show_presence(Departed(room.name, presence.author), None)
    await room.record_cursors_of(presence)


# Membership


async def invite(room: Room, session: Session, request: Invite) -> None:
    """Make a user a member; a step."""
    _check_room(room)
    check_text("user", request.user)
    user, this = request.user, room.session_id
    is_new = await room.hub.store.run(lambda store: store.add_member(this, user))
    session.show(Done(request, is_duplicate=not is_new))
    if is_new:
        room.show_presence(Arrived(room.name, Author(user), is_member=True), session)


async def expel(room: Room, session: Session, request: Expel) -> None:
    """End a membership, and let the clients of that user leave; a step."""
    _check_room(room)
    user, this = request.user, room.session_id
    if session.user not in (user, room.conversation.user):
        raise Refusal("member", "only who created the room may expel others")
    if not await room.hub.store.run(lambda store: store.remove_member(this, user)):
        raise Refusal("member", "this user is not a member of the room", detail=user[:200])
    session.show(Done(request))
    room.show_presence(Departed(room.name, Author(user), is_member=True), session)
    for other in [each for each in room.present if each.user == user]:
        await depart(room, other)


def _check_room(room: Room) -> None:
    if not room.conversation.is_room:
        raise Refusal("invalid", "this conversation is no room: it is one user's own")
