"""The addresses that somebody is known to answer for: whoever is away now may come back.

They are those that peers had as a name, or subscribed to, within the last days. A pattern that
begins with a wildcard does not count: such a peer observes others and answers for nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from busd.bus.address import has_wildcard
from busd.bus.mail import KnownAddress
from busd.bus.mail_store import ForgetAddress, MailStore, Remember
from busd.bus.routes import Routes, is_first_hand, is_observing
from busd.errors import RequestError

if TYPE_CHECKING:
    from busd.bus.peer import Member, Peer

_REFRESH_SHARE = 24  # seen again, it is recorded again after this part of the time it is known for
_ACCOUNT_SHARE = 4  # of all that may be known, one identity may add this part
_WRITTEN_AT_ONCE = 500  # changes, before which the mail of others is not held up


class Seen:
    """An address or a pattern, and when somebody answered for it last."""

    __slots__ = ("account", "address", "at", "is_first_hand")

    name = ""  # as a peer of the routes by which it is found

    def __init__(self, address: str, at: float, account: str, *, is_first_hand: bool) -> None:
        self.address = address
        self.at = at
        self.account = account
        self.is_first_hand = is_first_hand


class KnownAddresses:
    """What is known, in memory and in the store."""

    def __init__(self, store: MailStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self.known_seconds = 0.0
        self.max_count = 0
        self._seen: dict[str, Seen] = {}  # earliest first
        self._by_account: dict[str, int] = {}
        self._routes = Routes()
        # What is to be written, by address: the last change, when there is room for it.
        self._unwritten: OrderedDict[str, Remember | ForgetAddress] = OrderedDict()
        self._being_written = 0

    def load(self, found: Iterable[KnownAddress]) -> None:
        """Load what an earlier run recorded."""
        for each in sorted(found, key=lambda known: known.seen_at):
            if each.address not in self._seen:
                first = each.is_first_hand
                self._add(Seen(each.address, each.seen_at, "", is_first_hand=first))

    def __contains__(self, address: str) -> bool:
        """Return whether somebody answered for an address within the time set."""
        return any(True for _ in self._find(address))

    def is_expected(self, address: str) -> bool:
        """Return whether somebody answered for an address first-hand within the time set."""
        return any(seen.is_first_hand for seen in self._find(address))

    def _find(self, address: str) -> Iterator[Seen]:
        found: tuple[object, ...] = self._routes.match(address)
        for seen in found:
            if isinstance(seen, Seen) and self.is_fresh(seen):
                yield seen

    def is_fresh(self, seen: Seen) -> bool:
        """Return whether somebody answered within the time set."""
        return seen.at >= self._clock() - self.known_seconds

    def note(self, pattern: str, peer: Member) -> None:
        """Record that somebody answers for a pattern, unless that was recorded a while ago."""
        account = peer.account.name
        first = not has_wildcard(pattern) or is_first_hand(pattern, peer.name)
        seen, now = self._seen.get(pattern), self._clock()
        if seen is not None and not seen.account:  # of an earlier run
            self._count(seen, -1)
            seen.account = account
            self._count(seen, 1)
        if seen is not None and abs(now - seen.at) < self.known_seconds / _REFRESH_SHARE:
            if seen.is_first_hand or not first:
                return
        elif seen is not None and seen.is_first_hand and not first and self.is_fresh(seen):
            return  # whoever answers first-hand is not here
        if is_observing(pattern):
            return
        if seen is None and self._by_account.get(account, 0) * _ACCOUNT_SHARE >= self.max_count:
            return  # whoever takes thousands of names shall not have those of others forgotten
        if seen is not None:
            self._remove(seen)
            account = seen.account
        self._add(Seen(pattern, now, account, is_first_hand=first))
        self._write(Remember(pattern, now, first))

    def forget(self, pattern: str, account: str) -> None:
        """Forget a pattern that the same identity has made known: it will not answer any more."""
        seen = self._seen.get(pattern)
        if seen is not None and seen.account == account:
            self._remove(seen)
            self._write(ForgetAddress(pattern))

    def _write(self, change: Remember | ForgetAddress) -> None:
        """Write a change, at once or after those that are being written.

        So whoever subscribes and unsubscribes all the time does not fill the queue for the disk.
        """
        if change.address in self._unwritten or len(self._unwritten) < self.max_count:
            self._unwritten[change.address] = change
        self._write_next()

    def _write_next(self) -> None:
        while self._unwritten and self._being_written < _WRITTEN_AT_ONCE:
            self._being_written += 1
            self._store.submit(self._unwritten.popitem(last=False)[1], self._on_written)

    def _on_written(self, outcome: object) -> None:
        """Go on; what could not be written is only forgotten with the process."""
        self._being_written -= 1
        self._write_next()

    def _add(self, seen: Seen) -> None:
        while len(self._seen) >= self.max_count:
            self._remove(next(iter(self._seen.values())))
        try:
            self._routes.add(seen.address, _as_peer(seen))
        except RequestError:
            return  # too many globs, or recorded by a version that allowed more
        self._seen[seen.address] = seen
        self._count(seen, 1)

    def _remove(self, seen: Seen) -> None:
        del self._seen[seen.address]
        self._routes.remove(seen.address, _as_peer(seen))
        self._count(seen, -1)

    def _count(self, seen: Seen, count: int) -> None:
        number = self._by_account.pop(seen.account, 0) + count
        if number:
            self._by_account[seen.account] = number


def _as_peer(seen: Seen) -> Peer:
    return seen  # type: ignore[return-value]  # routes only store and compare what they lead to
