"""What the operations on mail do, over tables that are either SQL or plain Python.

`Engine.apply` carries out one operation and returns its outcome. A failure is found before
anything is changed, so that the other operations of the same transaction are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from heapq import nsmallest
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from busd.bus import mail_store as ops
from busd.bus.mail import (
    EXPIRED,
    MAX_PAYLOAD_BYTES,
    Box,
    BoxFull,
    BoxSummary,
    DeadFilter,
    DeadLetter,
    Held,
    Kept,
    KeyReused,
    KnownAddress,
    Mail,
    MailFailure,
    NotFound,
    NotHeld,
    TooLarge,
)
from busd.mail.state import NOTHING, EngineState

T = TypeVar("T")


class KeyRecord(msgspec.Struct):
    """An idempotency key of a sender: the first mail that had it, and its outcome."""

    id: int
    sender: str
    key: str
    digest: bytes  # of address and payload
    message_id: str | int
    kept_at: float
    account: str
    outcome: bytes | None = None


class Tables(Protocol):
    """Where an engine stores things. Sizes are those of payloads."""

    def insert(self, mail: Mail) -> None: ...
    def read(self, address: str, after: int, limit: int) -> Iterator[Mail]: ...
    def find(self, address: str, number: int) -> Mail | None: ...
    def has_mail(self, number: int) -> bool: ...
    def update(self, mail: Mail) -> None: ...
    def delete(self, address: str, first: int, last: int) -> list[tuple[str, int]]:
        """Delete a range of mail; return the account and the size of each."""
        ...

    def expired(self, now: float, limit: int) -> list[tuple[str, int]]:
        """Return address and id of mail that has expired, earliest expiry first."""
        ...

    def find_key(self, sender: str, key: str) -> KeyRecord | None: ...
    def put_key(self, key: KeyRecord) -> None:
        """Insert a key, or replace the one with the same sender and key."""
        ...

    def set_outcome(self, number: int, outcome: bytes) -> None: ...
    def renumber_key(self, old: int, new: int) -> None:
        """Assign a key to another mail, and delete its outcome."""
        ...

    def forget_keys_before(self, when: float) -> int:
        """Delete older keys, except those whose mail still waits; return their number."""
        ...

    def count_keys(self) -> int: ...
    def keys_by_account(self) -> dict[str, int]: ...
    def forget_oldest_keys(self, account: str, max_count: int) -> int: ...
    def insert_dead(self, letter: DeadLetter) -> None: ...
    def read_dead(self, chosen: DeadFilter, after: int, limit: int) -> Iterator[DeadLetter]: ...
    def find_dead(self, number: int) -> DeadLetter | None: ...
    def ids_of_dead(self, chosen: DeadFilter) -> list[int]: ...
    def oldest_dead(self, account: str) -> int | None: ...
    def delete_dead(self, ids: list[int]) -> list[tuple[str, str, int]]:
        """Delete dead letters; return address, account and size of each."""
        ...

    def remember(self, known: KnownAddress, max_count: int) -> None: ...
    def forget(self, address: str) -> None: ...
    def known(self, since: float) -> list[KnownAddress]: ...


TableT = TypeVar("TableT", bound=Tables)


class Engine(Generic[TableT]):
    """The operations; the caller begins and ends transactions."""

    def __init__(self, tables: TableT, state: EngineState) -> None:
        self.tables = tables
        self.state = state

    def apply(self, operation: ops.Operation[Any]) -> Any:  # its R, or a Failure
        """Execute one operation; return its outcome."""
        box: Box | None = getattr(operation, "box", None)
        if box is not None and type(operation) is not ops.Release and not self.state.is_held(box):
            return NotHeld(box.address)
        return HANDLERS[type(operation)](self, operation)

    # Keeping

    def keep(self, op: ops.Keep) -> Kept | MailFailure:
        mail, state = op.mail, self.state
        size = len(mail.payload)
        if size > MAX_PAYLOAD_BYTES:
            return TooLarge()
        digest = b""
        if mail.idempotency_key:
            digest = _digest(mail)
            first = self.tables.find_key(mail.sender, mail.idempotency_key)
            if first and self._is_remembered(first, mail.kept_at):
                if first.digest != digest:
                    return KeyReused(first.message_id)
                return Kept(first.id, False, first.message_id, first.outcome)
        if full := state.full(mail.address, mail.account, size):
            return full
        number = state.sequence.next()
        if digest:
            key = mail.idempotency_key
            names = mail.message_id, mail.kept_at, mail.account
            self.tables.put_key(KeyRecord(number, mail.sender, key, digest, *names))
        # A copy: the caller's mail belongs to another thread.
        self.tables.insert(msgspec.structs.replace(mail, id=number))
        state.add(mail.address, 1, size)
        state.charge(mail.account, 1, size)
        return Kept(number, True, mail.message_id)

    def _is_remembered(self, key: KeyRecord, now: float) -> bool:
        """Return whether a key is in the window, or its mail still waits."""
        is_recent = key.kept_at >= now - self.state.limits.key_seconds
        return is_recent or self.tables.has_mail(key.id)

    def finish(self, op: ops.Finish) -> None:
        self.tables.set_outcome(op.id, op.outcome)

    def forget_keys(self, op: ops.ForgetKeys) -> int:
        tables, limit = self.tables, self.state.limits.key_count
        forgotten = tables.forget_keys_before(op.before)
        if tables.count_keys() > limit:
            counts = tables.keys_by_account()
            share = fair_share(counts.values(), limit)
            for account, count in counts.items():
                if count > share:
                    forgotten += tables.forget_oldest_keys(account, share)
        return forgotten

    # Claims

    def claim(self, op: ops.Claim) -> Box | Held:
        state = self.state
        held = state.claims.get(op.address)
        if held and held.holder != op.holder:
            return Held(held.holder)
        counts = state.boxes.get(op.address, NOTHING)
        first = next(self.tables.read(op.address, 0, 1), None) if counts.count else None
        attempts = first.attempts if first else 0
        fence = state.sequence.next()
        box = Box(op.address, op.holder, fence, counts.count, counts.bytes, attempts)
        state.claims.put(op.address, box)
        return box

    def release(self, op: ops.Release) -> None:
        if self.state.is_held(op.box):
            self.state.claims.put(op.box.address, None)

    def forfeit(self, op: ops.Forfeit) -> int:
        boxes = list(self.state.claims_of(op.holder))
        for box in boxes:
            self.state.claims.put(box.address, None)
        return len(boxes)

    # Delivering

    def read(self, op: ops.Read) -> list[Mail]:
        found = self.tables.read(op.box.address, op.after, op.limit)
        return _cut(found, op.max_bytes, lambda mail: len(mail.payload))

    def peek(self, op: ops.Peek) -> list[Mail]:
        found = self.tables.read(op.address, op.after, op.limit)
        return _cut(found, op.max_bytes, lambda mail: len(mail.payload))

    def note_attempt(self, op: ops.NoteAttempt) -> int | NotFound:
        if not (mail := self.tables.find(op.box.address, op.id)):
            return NotFound(op.id)
        mail = msgspec.structs.replace(mail, attempts=mail.attempts + 1)
        self.tables.update(mail)
        return mail.attempts

    def settle(self, op: ops.Settle) -> int:
        return self._delete(op.box.address, 0, op.up_to)

    def settle_one(self, op: ops.SettleOne) -> None:
        self._delete(op.box.address, op.id, op.id)
        self.tables.set_outcome(op.id, op.outcome)

    def postpone(self, op: ops.Postpone) -> NotFound | None:
        if not (mail := self.tables.find(op.box.address, op.id)):
            return NotFound(op.id)
        changed = msgspec.structs.replace(mail, not_before=op.not_before, reason=op.reason)
        self.tables.update(changed)
        return None

    def purge(self, op: ops.Purge) -> list[Mail]:
        found = [
            msgspec.structs.replace(mail, payload=b"")
            for mail in self.tables.read(op.address, 0, op.limit)
        ]
        if found:
            self._delete(op.address, found[0].id, found[-1].id)
        return found

    def _delete(self, address: str, first: int, last: int) -> int:
        deleted = self.tables.delete(address, first, last)
        for account, size in deleted:
            self.state.charge(account, -1, -size)
        if deleted:
            self.state.add(address, -len(deleted), -sum(size for _, size in deleted))
        return len(deleted)

    # Dead letters

    def bury(self, op: ops.Bury) -> NotFound | None:
        is_there = self._bury(op.box.address, op.id, op.reason, op.now, op.outcome)
        return None if is_there else NotFound(op.id)

    def expire(self, op: ops.Expire) -> list[Mail]:
        found = self.tables.expired(op.now, op.limit)
        buried = [
            self._bury(address, number, EXPIRED, op.now, op.outcome) for address, number in found
        ]
        return [msgspec.structs.replace(mail, payload=b"") for mail in buried if mail]

    def _bury(
        self, address: str, number: int, reason: str, now: float, outcome: bytes
    ) -> Mail | None:
        if not (mail := self.tables.find(address, number)):
            return None
        mail = msgspec.structs.replace(mail, reason=reason)
        self._delete(address, number, number)
        if outcome and mail.idempotency_key:
            self.tables.set_outcome(number, outcome)
        self.tables.insert_dead(DeadLetter(mail, now))
        self.state.add(address, dead=1, dead_bytes=len(mail.payload))
        self.state.charge_dead(mail.account, 1, len(mail.payload))
        self._trim_dead()
        return mail

    def _trim_dead(self) -> None:
        """Delete dead letters over the limits: the oldest of the identity that has the most.

        So nobody can make the bus delete the dead letters of others.
        """
        while (account := self.state.most_dead()) is not None:
            oldest = self.tables.oldest_dead(account)
            assert oldest is not None  # it was counted
            self._delete_dead([oldest])

    def list_dead(self, op: ops.ListDead) -> list[DeadLetter]:
        found = self.tables.read_dead(op.filter, op.after, op.limit)
        return _cut(found, op.max_bytes, lambda letter: len(letter.mail.payload))

    def revive(self, op: ops.Revive) -> Kept | NotFound | BoxFull:
        if not (letter := self.tables.find_dead(op.id)):
            return NotFound(op.id)
        mail = letter.mail
        if full := self.state.full(mail.address, mail.account, len(mail.payload)):
            return full
        self._delete_dead([op.id])
        number = self.state.sequence.next()
        revived = msgspec.structs.replace(
            mail,
            id=number,
            kept_at=op.now,
            expires_at=op.expires_at,
            attempts=min(mail.attempts, 1),
            not_before=0.0,
            reason="",
        )
        self.tables.insert(revived)
        self.tables.renumber_key(op.id, number)
        self.state.add(mail.address, 1, len(mail.payload))
        self.state.charge(mail.account, 1, len(mail.payload))
        return Kept(number, True, mail.message_id)

    def drop_dead(self, op: ops.DropDead) -> int:
        ids = self.tables.ids_of_dead(op.filter) if op.ids is None else op.ids
        return self._delete_dead(ids)

    def _delete_dead(self, ids: list[int]) -> int:
        deleted = self.tables.delete_dead(ids)
        for address, account, size in deleted:
            self.state.add(address, dead=-1, dead_bytes=-size)
            self.state.charge_dead(account, -1, -size)
        return len(deleted)

    # Overview

    def survey(self, op: ops.Survey) -> list[BoxSummary]:
        boxes = self.state.boxes
        found = (each for each in boxes if each.startswith(op.prefix) and each > op.after)
        return [self._summary(address) for address in nsmallest(op.limit, found)]

    def _summary(self, address: str) -> BoxSummary:
        counts = self.state.boxes[address]
        first = next(self.tables.read(address, 0, 1), None)
        claim = self.state.claims.get(address)
        return BoxSummary(
            address,
            counts.count,
            counts.bytes,
            first.kept_at if first else None,
            counts.dead,
            counts.dead_bytes,
            claim.holder if claim else "",
        )

    def remember(self, op: ops.Remember) -> None:
        known = KnownAddress(op.address, op.now, op.is_first_hand)
        self.tables.remember(known, self.state.limits.known_count)

    def forget_address(self, op: ops.ForgetAddress) -> None:
        self.tables.forget(op.address)

    def known(self, op: ops.Known) -> list[KnownAddress]:
        return self.tables.known(op.since)


HANDLERS: dict[type, Callable[[Engine[Any], Any], Any]] = {  # each takes its own operation
    ops.Keep: Engine.keep,
    ops.Finish: Engine.finish,
    ops.ForgetKeys: Engine.forget_keys,
    ops.Claim: Engine.claim,
    ops.Release: Engine.release,
    ops.Forfeit: Engine.forfeit,
    ops.Read: Engine.read,
    ops.Peek: Engine.peek,
    ops.NoteAttempt: Engine.note_attempt,
    ops.Settle: Engine.settle,
    ops.SettleOne: Engine.settle_one,
    ops.Postpone: Engine.postpone,
    ops.Bury: Engine.bury,
    ops.Purge: Engine.purge,
    ops.Expire: Engine.expire,
    ops.Survey: Engine.survey,
    ops.ListDead: Engine.list_dead,
    ops.Revive: Engine.revive,
    ops.DropDead: Engine.drop_dead,
    ops.Remember: Engine.remember,
    ops.ForgetAddress: Engine.forget_address,
    ops.Known: Engine.known,
}


def fair_share(counts: Iterable[int], limit: int) -> int:
    """Return how many each may have at most, so that all together have no more than the limit."""
    share = 0
    ascending = sorted(counts)
    for place, count in enumerate(ascending):
        share = limit // (len(ascending) - place)
        if count > share:
            break
        limit -= count
    return share


def _digest(mail: Mail) -> bytes:
    """Return a hash of where a mail goes and of what it says."""
    return blake2b(mail.address.encode() + b"\0" + mail.payload, digest_size=16).digest()


def _cut(found: Iterator[T], max_bytes: int, size_of: Callable[[T], int]) -> list[T]:
    """Return the first one, and what else fits into a number of bytes."""
    chosen: list[T] = []
    for each in found:
        max_bytes -= size_of(each)
        if chosen and max_bytes < 0:
            break
        chosen.append(each)
    return chosen
