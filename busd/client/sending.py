"""Sending again: which failed sends are repeated, and when that ends.

A send is repeated with the same message id until its time is up:

| failure | durable, or with a key | others |
| --- | --- | --- |
| `ConnectionLost`, maybe delivered | yes: the bus recognizes a message that it has already | no |
| `ConnectionLost`, not sent | yes | yes |
| -32004 with `retrySeconds` | yes | only rule `busy`: the bus is stopping, nothing was accepted |
| anything else | no | no |
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

import anyio
from msgspec import UNSET

from busd.bus.message import MAX_ID_CHARACTERS, DeliveryOptions, Message
from busd.client.connect import pauses
from busd.errors import BusdError, Busy, CallRefused, ConnectionLost

T = TypeVar("T")
_JITTER = 0.25


def delivery_options(
    durable: bool, ttl_seconds: float | None, idempotency_key: str
) -> DeliveryOptions:
    """Return the member `delivery` of a message; raise ValueError for what no bus accepts."""
    if ttl_seconds is not None and not 0 < ttl_seconds < inf:
        raise ValueError(f"ttl_seconds is a number of seconds over 0, not {ttl_seconds}")
    if len(idempotency_key) > MAX_ID_CHARACTERS:
        raise ValueError(f"an idempotency key has at most {MAX_ID_CHARACTERS} characters")
    return DeliveryOptions(
        durable=durable,
        ttl_seconds=UNSET if ttl_seconds is None else ttl_seconds,
        idempotency_key=idempotency_key or UNSET,
    )


def is_recognized(message: Message) -> bool:
    """Return whether the bus recognizes a message that it gets a second time."""
    options = message.delivery
    return options is not UNSET and (options.durable or options.idempotency_key is not UNSET)


async def repeat(
    attempt: Callable[[], Awaitable[T]], message: Message, deadline: float, problem: BusdError
) -> T:
    """Repeat a send whose first attempt has failed; raise why it failed when that is all.

    If the bus may have accepted the message at an earlier attempt, that is what is raised.
    """
    is_safe = is_recognized(message)
    lost: ConnectionLost | None = None
    waits = pauses()
    while True:
        if isinstance(problem, ConnectionLost) and problem.maybe_delivered:
            lost = lost or problem
        seconds = _seconds_until_next(problem, next(waits), is_safe=is_safe)
        if seconds is None or time.monotonic() + seconds >= deadline:
            if lost is None or lost is problem:
                raise problem
            raise lost from problem
        await anyio.sleep(seconds)
        try:
            return await attempt()
        except BusdError as next_problem:
            problem = next_problem


def _seconds_until_next(problem: BusdError, pause: float, *, is_safe: bool) -> float | None:
    """Return how long to wait for the next attempt; None if there must be none."""
    if isinstance(problem, ConnectionLost):
        return pause if is_safe or not problem.maybe_delivered else None
    if not isinstance(problem, CallRefused) or problem.code != Busy.code:
        return None
    data = problem.data if isinstance(problem.data, dict) else {}
    wished = data.get("retrySeconds")
    if not isinstance(wished, int | float) or not (is_safe or data.get("rule") == Busy.rule):
        return None
    # Random, so that those who were refused together do not come back together.
    return max(wished, pause) * random.uniform(1, 1 + _JITTER)  # noqa: S311 - not a secret
