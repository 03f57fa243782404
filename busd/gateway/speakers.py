"""Speakers: as which author a client may speak.

The owner may speak as anybody. Other users are no agents; in a room, where there are several users,
each has one author's id, the first that it used, and no other user may use that. The name of a
member is that member's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from busd.gateway.conversation import Author
from busd.gateway.refusal import Refusal

if TYPE_CHECKING:
    from busd.gateway.room import Room
    from busd.gateway.session import Session
    from busd.gateway.store import Store

MAX_ID_CHARACTERS = 256


def check_text(name: str, text: str, *, is_optional: bool = False) -> None:
    """Raise Refusal for what cannot be an id or a name."""
    if not text and not is_optional:
        raise Refusal("invalid", f"{name} is empty", detail=name)
    if len(text) > MAX_ID_CHARACTERS:
        reason = f"{name} has more than {MAX_ID_CHARACTERS} characters"
        raise Refusal("invalid", reason, detail=name)
    if not text.isprintable():
        raise Refusal("invalid", f"{name} has characters that cannot be printed", detail=name)


def named_author(author: Author, session: Session, room: Room | None = None) -> Author:
    """Return an author with an id: without one it is who entered, else the user; raise Refusal."""
    if not author.id:
        presence = room.present.get(session) if room else None
        named = presence.author if presence else Author(session.user)
        author = msgspec.structs.replace(named, type=author.type, name=author.name or named.name)
    check_text("author.id", author.id)
    check_text("author.name", author.name, is_optional=True)
    if author.type == "agent" and not session.is_owner:
        raise Refusal("author", "agents speak over the bus, not as clients", detail=author.id)
    return author


def claim_author(store: Store, room: Room, session: Session, author: Author) -> None:
    """Bind an author's id to a user of a room; raise Refusal if another user has it."""
    if session.is_owner or not room.conversation.is_room:
        return
    mine = store.author_ids(room.session_id, session.user)
    if author.id in mine:
        return
    if mine:
        reason = f"you speak as {mine[0]} in this room"
        raise Refusal("author", reason, detail=author.id)
    if author.id != session.user and store.is_member(room.session_id, author.id):
        raise Refusal("author", "another member has this name", detail=author.id)
    if store.bind_author(room.session_id, author.id, session.user) != session.user:
        raise Refusal("author", "another user speaks as this author", detail=author.id)
