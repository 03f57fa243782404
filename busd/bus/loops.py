"""The loop breaker: refuse messages that go round in a loop, and say which loop.

Two rules. `loop.hops`: a message that names its cause extends a chain, and a chain has at most
`max_hops` messages (hops.py). `loop.budget`: a cycle over whose every edge more than
`max_cycle_messages` have passed lately is blocked for a while (cycles.py, blocks.py).

The budget judges messages without a cause, those whose cause is unknown, perhaps invented, and
those of chains that are long already: an agent that answers everything twice makes a flood long
before a chain has `max_hops`. The others are judged by their hops alone, but may be a part of a
cycle: of two agents that answer each other, perhaps only one names causes. The cause "" declares
that nothing caused a message; it begins a chain, and the budget ignores it.

The default budget is 100 messages a second from each to the next, for a minute. Two of our own
clients that answer each other without any work exchange 2,000 a second, sixteen in a cycle still
180 each. What people, models and tools exchange is far below. A program that gets more answers than
that has acks for them; if it needs messages, raise the setting, or let it send its requests with
the cause "".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import UNSET, UnsetType

from busd.bus.blocks import Block, Blocks
from busd.bus.cycles import Key
from busd.bus.hops import MAX_PATH, Hops, Link, first_link, renewed
from busd.errors import LoopDetected
from busd.quantities import CountOrZero, Seconds, about

if TYPE_CHECKING:
    from busd.bus.mail import Mail
    from busd.bus.message import Message, MessageId
    from busd.bus.peer import Peer

WatchLoops = Callable[[tuple[str, ...], str], None]  # gets the path and the rule
HOPS, BUDGET = "loop.hops", "loop.budget"
_MAX_REPORTS, _REPORT_SECONDS = 16, 60.0  # so many different loops, each once in this time
_MAX_RECEIVERS = 16  # among more nobody answers for the address
_SHORT_HOPS = 8


class LoopLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long messages may cause each other."""

    max_hops: Annotated[
        CountOrZero,
        about("Messages in a chain of causes; 0: no limit."),
    ] = 64
    max_cycle_messages: Annotated[
        CountOrZero,
        about(
            "Messages from each peer of a cycle to the next in `loops.cycle_seconds`; beyond that"
            " the cycle is blocked for a while. 0: no limit."
        ),
    ] = 6_000
    cycle_seconds: Annotated[
        Seconds, about("Time in which `loops.max_cycle_messages` are allowed.")
    ] = 60.0


class Loops:
    """Judges the messages of one bus.

    The bus asks for each message that has a cause, and for each whose number has reached
    `next_number`.
    """

    def __init__(self, limits: LoopLimits, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.watchers: list[WatchLoops] = []  # called once for each loop found
        self.found: Counter[str] = Counter()  # loops, by rule; each once a minute
        self.refused: Counter[str] = Counter()  # messages, by rule
        self._reported: dict[tuple[str, frozenset[str]], float] = {}
        self._begin(limits)

    def change(self, limits: LoopLimits) -> None:
        """Apply new limits while running; what was counted and blocked by others is forgotten."""
        if limits != self.limits:
            self._begin(limits)

    def _begin(self, limits: LoopLimits) -> None:
        self.limits = limits
        self._hops = Hops()
        self._blocks = Blocks(limits.max_cycle_messages, limits.cycle_seconds, 0, self._clock())
        self.next_number = self._blocks.next_number

    def judge(
        self,
        number: int,
        message: Message,
        cause: MessageId | UnsetType,
        sender: str,
        peers: tuple[Peer, ...],
    ) -> None:
        """Raise LoopDetected if a message may not go on, else take note of it.

        `number` counts accepted messages, `sender` is the name under which its peer has joined, and
        `peers` get it.
        """
        link = self._check(number, message, cause, sender, peers)
        if link is not None and peers:
            self._hops.add(message.message_id, [peer.name for peer in peers], link)

    def judge_mail(
        self, number: int, message: Message, sender: str, peers: tuple[Peer, ...]
    ) -> int | None:
        """Judge a message that is about to be kept; return its hops, None if it names no cause.

        `peers` would get it now. Who gets it is known when it is handed over, and noted then.
        """
        link = self._check(number, message, message.caused_by, sender, peers)
        if link is None:
            return None
        self._hops.add(message.message_id, [message.to], link)
        return link.hops

    def note_handed_over(self, mail: Mail, names: list[str]) -> None:
        """Note who gets mail, which may be a cause from now on.

        The path that led to it is forgotten with the process, or after an hour; then it begins
        with the sender of the mail. The hops are kept with the mail.
        """
        if mail.hops is None:
            return
        now = self._clock()
        link = self._hops.find(mail.message_id, mail.address, now)
        if link is None or link.hops != mail.hops:
            link = first_link(mail.hops, mail.sender, now)
        self._hops.add(mail.message_id, names, renewed(link, now))

    def skip_number(self) -> None:
        """Leave out the next number of the sample: it was used for something else."""
        self._blocks.skip_number()
        self.next_number = self._blocks.next_number

    def _check(
        self,
        number: int,
        message: Message,
        cause: MessageId | UnsetType,
        sender: str,
        peers: tuple[Peer, ...],
    ) -> Link | None:
        """Raise LoopDetected, or return the link to record."""
        now = self._clock()
        link: Link | None = None
        is_budgeted = True
        if cause is not UNSET:
            link, is_budgeted = self._follow(cause, message, sender, now)
        if self._blocks and is_budgeted:
            self._check_blocked(_key_of(message, sender), now)
        if self._blocks.is_due(number, now):
            self.next_number = self._blocks.next_number
            if cause != "":
                self._spend(message, sender, peers, is_budgeted=is_budgeted, now=now)
        return link

    def _follow(
        self, cause: MessageId, message: Message, sender: str, now: float
    ) -> tuple[Link | None, bool]:
        """Return the link to record, and whether the budget judges the message."""
        limit = self.limits.max_hops
        if cause == "":
            return first_link(0, sender, now) if limit else None, False
        if not limit:
            return None, True
        before = self._hops.find(cause, sender, now)
        if before is None:
            return first_link(1, sender, now), True
        link = before.next(sender, now)
        if link.hops > limit:
            path = (*link.path, message.to)[-MAX_PATH:]
            self.refused[HOPS] += 1
            self._report(path, HOPS)
            reason = f"message {link.hops} of a chain of causes; loops.max_hops allows {limit}"
            raise LoopDetected(reason, rule=HOPS, hops=link.hops, limit=limit, path=list(path))
        return link, link.hops > _SHORT_HOPS

    def _check_blocked(self, key: Key, now: float) -> None:
        """Raise LoopDetected for a message of a cycle that is blocked."""
        if (block := self._blocks.find(key, now)) is not None:
            raise self._refusal(block, now)

    def _spend(
        self,
        message: Message,
        sender: str,
        peers: tuple[Peer, ...],
        *,
        is_budgeted: bool,
        now: float,
    ) -> None:
        """Count a message of the sample; raise LoopDetected if its cycle is over the budget."""
        key, receiver = _key_of(message, sender), _answerer_of(message, sender, peers)
        block = self._blocks.note(key, receiver, now, is_budgeted=is_budgeted)
        if block is not None:
            self.next_number = self._blocks.next_number
            self._report(block.path, BUDGET)
            raise self._refusal(block, now)

    def _refusal(self, block: Block, now: float) -> LoopDetected:
        self.refused[BUDGET] += 1
        limits = self.limits
        budget = f"more than {limits.max_cycle_messages} messages in {limits.cycle_seconds:g} s"
        return LoopDetected(
            f"{' → '.join(block.path)}: {budget} (loops.max_cycle_messages)",
            rule=BUDGET,
            limit=limits.max_cycle_messages,
            path=list(block.path),
            retrySeconds=round(block.until - now, 3),
        )

    def _report(self, path: tuple[str, ...], rule: str) -> None:
        """Notify the watchers of a loop, unless they were a moment ago, or of too many others."""
        now, loop = self._clock(), (rule, frozenset(path))
        for known, at in list(self._reported.items()):
            if now - at >= _REPORT_SECONDS:
                del self._reported[known]
        if loop in self._reported:
            return
        self.found[rule] += 1
        if len(self._reported) < _MAX_REPORTS:
            self._reported[loop] = now
            for watcher in list(self.watchers):
                watcher(path, rule)


def _key_of(message: Message, sender: str) -> Key:
    """Return the edge of a message; the senders that existing clients invent have no colon."""
    speaks_as = str(message.sender)
    return sender, "" if speaks_as == sender or ":" not in speaks_as else speaks_as, message.to


def _answerer_of(message: Message, sender: str, peers: tuple[Peer, ...]) -> str:
    """Return the peer that answers for a message's address, if it is one; observers do not.

    What comes back to its sender counts only if it was sent to its very name or address. Nobody is
    here for what is kept: then it is whoever has this name.
    """
    to = message.to
    if not peers:
        return to
    if len(peers) > _MAX_RECEIVERS:
        return ""
    if len(peers) == 1:  # the same as below without the sets: 0.1 µs instead of 0.4
        peer = peers[0]
        name = peer.name
        if name == to:
            return to
        if name == sender:
            return sender if to == message.sender else ""
        return name if to in peer.subscriptions or "*" not in peer.subscriptions else ""
    names = {peer.name for peer in peers}
    if to in names:
        return to
    if to == message.sender and sender in names:
        return sender
    exact = {peer.name for peer in peers if to in peer.subscriptions}
    others = (exact or {peer.name for peer in peers if "*" not in peer.subscriptions}) - {sender}
    return others.pop() if len(others) == 1 else ""
