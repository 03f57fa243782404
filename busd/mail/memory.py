"""Mail in memory, for tests: the same operations over plain Python, nothing on a disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, TypeVar

from msgspec.structs import replace

from busd.bus.mail import (
    DeadFilter,
    DeadLetter,
    KnownAddress,
    Mail,
    MailFailure,
    MailLimits,
    Totals,
)
from busd.bus.mail_store import Done, Operation
from busd.mail.engine import Engine, KeyRecord
from busd.mail.state import EngineState

R = TypeVar("R")


class MemoryTables:
    """`busd.mail.engine.Tables` in dicts; mail and dead letters are in the order of their ids."""

    def __init__(self) -> None:
        self._boxes: dict[str, dict[int, Mail]] = {}
        self._dead: dict[int, DeadLetter] = {}
        self._keys: dict[tuple[str, str], KeyRecord] = {}
        self._known: dict[str, KnownAddress] = {}

    def copy(self) -> MemoryTables:
        """Return tables of their own with the same contents."""
        tables = MemoryTables()
        tables._boxes = {address: dict(box) for address, box in self._boxes.items()}
        tables._dead = dict(self._dead)
        tables._keys = {name: replace(key) for name, key in self._keys.items()}
        tables._known = dict(self._known)
        return tables

    def insert(self, mail: Mail) -> None:
        self._boxes.setdefault(mail.address, {})[mail.id] = mail

    def read(self, address: str, after: int, limit: int) -> Iterator[Mail]:
        box = self._boxes.get(address, {})
        return iter([replace(mail) for mail in box.values() if mail.id > after][:limit])

    def find(self, address: str, number: int) -> Mail | None:
        return self._boxes.get(address, {}).get(number)

    def has_mail(self, number: int) -> bool:
        return any(number in box for box in self._boxes.values())

    def update(self, mail: Mail) -> None:
        self._boxes[mail.address][mail.id] = mail

    def delete(self, address: str, first: int, last: int) -> list[tuple[str, int]]:
        box = self._boxes.get(address, {})
        mail = [box.pop(number) for number in list(box) if first <= number <= last]
        return [(each.account, len(each.payload)) for each in mail]

    def expired(self, now: float, limit: int) -> list[tuple[str, int]]:
        every = (mail for box in self._boxes.values() for mail in box.values())
        expired = sorted(
            (mail for mail in every if mail.expires_at <= now), key=attrgetter("expires_at", "id")
        )
        return [(mail.address, mail.id) for mail in expired[:limit]]

    def find_key(self, sender: str, key: str) -> KeyRecord | None:
        return self._keys.get((sender, key))

    def put_key(self, key: KeyRecord) -> None:
        self._keys[key.sender, key.key] = key

    def set_outcome(self, number: int, outcome: bytes) -> None:
        for key in self._keys.values():
            if key.id == number:
                key.outcome = outcome

    def renumber_key(self, old: int, new: int) -> None:
        for key in self._keys.values():
            if key.id == old:
                key.id, key.outcome = new, None

    def forget_keys_before(self, when: float) -> int:
        old = [key for key in self._keys.values() if key.kept_at < when]
        return self._forget([key for key in old if not self.has_mail(key.id)])

    def count_keys(self) -> int:
        return len(self._keys)

    def keys_by_account(self) -> dict[str, int]:
        return Counter(key.account for key in self._keys.values())

    def forget_oldest_keys(self, account: str, max_count: int) -> int:
        keys = sorted(
            (key for key in self._keys.values() if key.account == account), key=attrgetter("id")
        )
        return self._forget(keys[: len(keys) - max_count])

    def _forget(self, keys: list[KeyRecord]) -> int:
        for key in keys:
            del self._keys[key.sender, key.key]
        return len(keys)

    def insert_dead(self, letter: DeadLetter) -> None:
        self._dead[letter.mail.id] = letter

    def read_dead(self, chosen: DeadFilter, after: int, limit: int) -> Iterator[DeadLetter]:
        ids = [number for number in self.ids_of_dead(chosen) if number > after]
        return iter([self._dead[number] for number in ids[:limit]])

    def find_dead(self, number: int) -> DeadLetter | None:
        return self._dead.get(number)

    def ids_of_dead(self, chosen: DeadFilter) -> list[int]:
        return sorted(
            number
            for number, letter in self._dead.items()
            if letter.mail.address.startswith(chosen.prefix)
            and chosen.sender in ("", letter.mail.sender)
            and (chosen.buried_before is None or letter.buried_at < chosen.buried_before)
        )

    def oldest_dead(self, account: str) -> int | None:
        letters = self._dead.values()
        return min((each.mail.id for each in letters if each.mail.account == account), default=None)

    def delete_dead(self, ids: list[int]) -> list[tuple[str, str, int]]:
        found = [self._dead.pop(number).mail for number in set(ids) if number in self._dead]
        return [(mail.address, mail.account, len(mail.payload)) for mail in found]

    def remember(self, known: KnownAddress, max_count: int) -> None:
        self._known[known.address] = known
        while len(self._known) > max_count:
            earliest = min(self._known.values(), key=attrgetter("seen_at", "address"))
            del self._known[earliest.address]

    def forget(self, address: str) -> None:
        self._known.pop(address, None)

    def known(self, since: float) -> list[KnownAddress]:
        return [each for _, each in sorted(self._known.items()) if each.seen_at >= since]


class MemoryMailStore:
    """A `MailStore` that forgets everything; outcomes are delivered by `schedule`."""

    is_failing = False

    def __init__(
        self, schedule: Callable[[Callable[[], None]], object], limits: MailLimits
    ) -> None:
        self._schedule = schedule
        self._engine = Engine(MemoryTables(), EngineState(limits))
        self._outcomes: list[tuple[Done[Any], Any]] = []

    @property
    def waiting(self) -> int:
        return len(self._outcomes)

    @property
    def totals(self) -> Totals:
        return self._engine.state.totals

    def submit(self, operation: Operation[R], done: Done[R], /) -> None:
        outcome: R | MailFailure = self._engine.apply(operation)
        self._engine.state.commit()
        self._outcomes.append((done, outcome))
        if len(self._outcomes) == 1:
            self._schedule(self._deliver)

    def close(self, seconds: float) -> bool:
        self._deliver()
        return True

    def _deliver(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        for done, outcome in outcomes:
            done(outcome)
