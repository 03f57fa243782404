"""Shares of the queue for the disk: what each identity may have in it."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from busd.bus.mail import Mail, MailLimits


class WriteShares:
    """The messages that are being written, by the identity that sent them."""

    def __init__(self) -> None:
        self.count = 0
        self._count_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    def note(self, mail: Mail, change: Literal[1, -1]) -> None:
        """Note that a message is being written, or is not any more."""
        self.count += change
        for of, amount in (self._count_of, 1), (self._bytes_of, len(mail.payload)):
            of[mail.account] += change * amount
            if not of[mail.account]:
                del of[mail.account]

    def exceeded(self, mail: Mail, waiting: int, limits: MailLimits) -> int:
        """Return the limit that an identity would come too close to, 0 if there is none.

        It may have as much as there is room left for others: one alone gets half of the room, two
        get a third each, and there is always some left. `waiting` is the length of the queue.
        """
        for of, total, limit in (
            (self._count_of, waiting, limits.waiting_count),
            (self._bytes_of, self._bytes_of.total(), limits.waiting_bytes),
        ):
            if of[mail.account] and of[mail.account] >= limit - total:
                return limit
        return 0
