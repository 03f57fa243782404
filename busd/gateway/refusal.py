"""Refusals: why a request of a client was not performed."""

from __future__ import annotations

from busd.errors import BusdError
from busd.gateway.events import RULES
from busd.gateway.stored import (
    StoreBusy,
    StoreFailed,
    StoreFull,
    StoreRefusal,
    UnknownConversation,
)

RETRY_SECONDS = 5.0


class Refusal(BusdError):
    """Raised while a request is performed: nothing of it is done, and its client is shown why."""

    def __init__(
        self, rule: str, reason: str, *, retry_seconds: float | None = None, detail: str = ""
    ) -> None:
        assert rule in RULES
        super().__init__(f"{rule}: {reason}")
        self.rule = rule
        self.reason = reason  # for the client
        self.retry_seconds = retry_seconds
        self.detail = detail


def refusal_of(problem: StoreRefusal | StoreFailed) -> Refusal:
    """Return what a client is shown if the store does not do something."""
    match problem:
        case StoreFull():
            return Refusal("limit", str(problem), detail=problem.limit)
        case UnknownConversation():
            return Refusal("conversation", str(problem))
        case StoreBusy() | StoreFailed():
            return Refusal("busy", str(problem), retry_seconds=RETRY_SECONDS)
    return Refusal("invalid", str(problem))


def stopping() -> Refusal:
    """Return what is shown while the gateway stops."""
    return Refusal("busy", "the gateway is stopping; connect again", retry_seconds=1.0)
