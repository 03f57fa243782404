"""The states of a message in a mailbox, and the transitions between them.

| from | event | to |
| --- | --- | --- |
| ACCEPTED | written | KEPT |
| KEPT, RETRYING, UNKNOWN | handed_over | DELIVERED |
| DELIVERED | acked | ACKED |
| DELIVERED | refused | REFUSED |
| DELIVERED | postponed | RETRYING |
| DELIVERED | lost | UNKNOWN |
| RETRYING, UNKNOWN | gave_up | DEAD |
| KEPT, DELIVERED, RETRYING, UNKNOWN | expired | EXPIRED |
| KEPT, DELIVERED, RETRYING, UNKNOWN | purged | PURGED |
| KEPT, RETRYING, UNKNOWN | buried | DEAD |
| EXPIRED, PURGED | acked | ACKED |

Any other event leaves the state as it is. A message that cannot be written never leaves ACCEPTED:
its sender is refused.
"""

from __future__ import annotations

from enum import StrEnum


class MailState(StrEnum):
    """Where a message is in its life."""

    ACCEPTED = "accepted"  # it is being written
    KEPT = "kept"  # it is on the disk and was not handed to anybody
    DELIVERED = "delivered"  # it was handed over, and the answer is awaited
    ACKED = "acked"  # a peer that answers for its address has accepted it
    REFUSED = "refused"  # by its addressee, permanently
    RETRYING = "retrying"  # its addressee asked for another attempt, or could not take it
    UNKNOWN = "unknown"  # it was handed over, and the peer left or was silent
    EXPIRED = "expired"  # it was not delivered within its time
    DEAD = "dead"  # given up after too many attempts, or because its addressee will not come
    PURGED = "purged"  # deleted by the operator

    @property
    def is_final(self) -> bool:
        """The bus will not hand it over again, unless an operator wants that."""
        return self in _FINAL


_S = MailState
_FINAL = frozenset({_S.ACKED, _S.REFUSED, _S.EXPIRED, _S.DEAD, _S.PURGED})
_WAITING = (_S.KEPT, _S.RETRYING, _S.UNKNOWN)
TRANSITIONS: dict[tuple[MailState, str], MailState] = {
    (_S.ACCEPTED, "written"): _S.KEPT,
    **{(state, "handed_over"): _S.DELIVERED for state in _WAITING},
    (_S.DELIVERED, "acked"): _S.ACKED,
    (_S.DELIVERED, "refused"): _S.REFUSED,
    (_S.DELIVERED, "postponed"): _S.RETRYING,
    (_S.DELIVERED, "lost"): _S.UNKNOWN,
    (_S.RETRYING, "gave_up"): _S.DEAD,
    (_S.UNKNOWN, "gave_up"): _S.DEAD,
    **{(state, "expired"): _S.EXPIRED for state in (*_WAITING, _S.DELIVERED)},
    **{(state, "purged"): _S.PURGED for state in (*_WAITING, _S.DELIVERED)},
    **{(state, "buried"): _S.DEAD for state in _WAITING},
    (_S.EXPIRED, "acked"): _S.ACKED,
    (_S.PURGED, "acked"): _S.ACKED,
}


def initial_state(attempts: int, not_before: float) -> MailState:
    """Return the state of mail that was read from the disk, by what is on record there."""
    if not attempts:
        return MailState.KEPT
    return MailState.RETRYING if not_before else MailState.UNKNOWN


def after(state: MailState, event: str) -> MailState:
    """Return the state after an event; the same state if the event means nothing to it."""
    return TRANSITIONS.get((state, event), state)
