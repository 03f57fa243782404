"""Hops: how many messages caused each other, counted along their `causedBy`.

Whoever sends a message while it handles another one may name that other one as its cause. The bus
remembers, for each of these messages and each of its receivers, the chain that led to it. A
receiver that names the message as a cause extends the chain. A cause that is not remembered begins
a chain: most causes are plain messages, which are not recorded, so that they cost nothing.

Both names in a chain are authenticated: a message counts as a cause only for the peers that it was
delivered to, under the names by which they joined. A peer that invents causes hurts only itself.

Mail is recorded for its address when it is kept, and for each receiver when it is handed over. Its
number of hops is stored with it, so it is never lost; the names before its sender may be.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

MAX_PATH = 32  # senders of a chain that are remembered, the latest ones
MAX_BYTES = 8 * 1024 * 1024
MAX_SECONDS = 3_600.0  # a worker may take long; a cause that is older begins a new chain
_SHARE = 256  # links of one receiver that only a full table displaces
# What these take, about: measured with `tracemalloc`, rounded up.
_TABLE_BYTES, _LINK_BYTES, _NAME_BYTES, _CHARACTER_BYTES = 640, 320, 88, 4


class Link(msgspec.Struct, frozen=True, gc=False):
    """A message as a part of a chain: the message that began it has 0 hops, its effect has 1."""

    hops: int
    path: tuple[str, ...]  # the names of the peers that sent the last messages, oldest first
    made: float
    size: int  # the names count for each link: the peers that had them may be gone

    def next(self, sender: str, now: float) -> Link:
        """Return the link of a message that this one has caused."""
        path, size = self.path, self.size + _NAME_BYTES + len(sender) * _CHARACTER_BYTES
        if len(path) == MAX_PATH:
            size -= _NAME_BYTES + len(path[0]) * _CHARACTER_BYTES
            path = path[1:]
        return Link(self.hops + 1, (*path, sender), now, size)


def first_link(hops: int, sender: str, now: float) -> Link:
    """Return the link of a message whose cause is not known (1 hop), or which has none (0)."""
    size = _LINK_BYTES + len(sender) * _CHARACTER_BYTES
    return Link(hops, (sender,), now, size)


def renewed(link: Link, now: float) -> Link:
    """Return the link of mail that is handed over now, however long it has waited."""
    return Link(link.hops, link.path, now, link.size)


class Hops:
    """The links by receiver and message: bounded by bytes and by age, the oldest forgotten first.

    A receiver with many links forgets its own before those of others: a busy pair of peers does
    not hide a slow loop elsewhere.
    """

    def __init__(self) -> None:
        # By receiver, the one least recently written to first; then by message id. Ordered, because
        # the first key of a dict is searched for among all that were removed before it.
        self._received: OrderedDict[str, OrderedDict[str, Link]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._received.values()))

    def find(self, message_id: object, receiver: str, now: float) -> Link | None:
        """Return the link of a message that was delivered to `receiver`, if it is remembered."""
        links = self._received.get(receiver)
        link = links.get(str(message_id)) if links else None
        return link if link is not None and now - link.made < MAX_SECONDS else None

    def add(self, message_id: object, receivers: Iterable[str], link: Link) -> None:
        """Remember the link of a message for each of its receivers."""
        key = str(message_id)  # a peer may return the number 7 as "7"
        for receiver in receivers:
            links = self._received.get(receiver)
            if links is None:
                links = self._received[receiver] = OrderedDict()
                self.bytes += _size_of_table(receiver)
            elif old := links.pop(key, None):
                self.bytes -= _size_of(key, old)
            links[key] = link
            self._received.move_to_end(receiver)
            self.bytes += _size_of(key, link)
            while self.bytes > MAX_BYTES:
                self._forget_one(receiver)
        self._forget_stale(link.made)

    def _forget_one(self, writing: str) -> None:
        """Forget the oldest link of the receiver that has many, else of the quietest one."""
        has_many = len(self._received[writing]) > _SHARE
        receiver = writing if has_many else next(iter(self._received))
        links = self._received[receiver]
        self.bytes -= _size_of(*links.popitem(last=False))
        if not links:
            self._forget_receiver(receiver)

    def _forget_stale(self, now: float) -> None:
        """Forget the quietest receiver if all its links are too old; one at a time is enough."""
        receiver, links = next(iter(self._received.items()))  # one was written just now
        if now - links[next(reversed(links))].made >= MAX_SECONDS:
            self._forget_receiver(receiver)

    def _forget_receiver(self, receiver: str) -> None:
        links = self._received.pop(receiver)
        self.bytes -= _size_of_table(receiver)
        self.bytes -= sum(_size_of(key, link) for key, link in links.items())


def _size_of_table(receiver: str) -> int:
    return _TABLE_BYTES + len(receiver) * _CHARACTER_BYTES


def _size_of(message_id: str, link: Link) -> int:
    return link.size + len(message_id) * _CHARACTER_BYTES
