"""Faults: what Discord answers when something is wrong, in the words of the bridge kit.

| Discord | kit |
| --- | --- |
| 429 | `SlowDown`, everywhere if the limit is global |
| 5xx, a time-out, half a response | `MaybePosted` |
| no connection | `Refuse`, tried again |
| 401 | `Unauthorized`, tried again |
| 400, 403, 404 | `Refuse` for good, unless it is a page of a proxy |

No exception of the libraries leaves this file: they may carry the request, with the token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import aiohttp
import discord

from busd import Refuse
from busd.bridge import MaybePosted, SlowDown

# What the libraries raise. An answer that is not Discord's own, such as a page of a proxy, is taken
# for one by discord.py, which then raises the last two.
FAULTS = (
    discord.DiscordException,
    aiohttp.ClientError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
)
UNKNOWN_MESSAGE = 10008
_REASONS = {
    10003: "the channel is gone",
    50001: "the bot may not see the channel",
    50007: "the user does not accept messages of the bot",
    50013: "the bot may not write in the channel",
    160005: "the thread is locked",
    50083: "the thread is archived",
}
_RETRY_SECONDS = 2.0
_UNAUTHORIZED_SECONDS = 2.0  # until then the session is closed
_PROXY_SECONDS = 30.0
_BAN_SECONDS = 60.0  # a 429 that does not say how long
_MAX_PAUSE_SECONDS = 3600.0
_MAX_WORDS = 200


class Unauthorized(Refuse):
    """Discord refuses the token."""

    def __init__(self) -> None:
        super().__init__("Discord refuses the token", retry_seconds=_UNAUTHORIZED_SECONDS)


class GoneMessage(Refuse):
    """The message that was to be edited is gone."""


class NoPermission(Refuse):
    """The bot may not do this, or there is nothing to do it with."""


def make_trace() -> aiohttp.TraceConfig:
    """Return what makes 429 and 5xx known at once: discord.py would wait and repeat by itself."""
    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(_raise_for_status)
    return trace


async def _raise_for_status(
    _session: aiohttp.ClientSession,
    _context: SimpleNamespace,
    params: aiohttp.TraceRequestEndParams,
) -> None:
    response = params.response
    if params.url.scheme in ("ws", "wss") or (response.status != 429 and response.status < 500):
        return
    try:
        body = await response.read()
    except aiohttp.ClientError:
        body = b""
    if response.status == 429:
        raise _slow_down(response, body)
    raise MaybePosted(f"Discord answers {response.status}", retry_seconds=_RETRY_SECONDS)


def _slow_down(response: aiohttp.ClientResponse, body: bytes) -> SlowDown:
    """Return how long to wait; an answer that is not Discord's own bans the whole address."""
    try:
        said = json.loads(body)
        seconds, is_global = float(said["retry_after"]), bool(said.get("global"))
    except (ValueError, KeyError, TypeError, AttributeError):
        header = response.headers.get("Retry-After", "")
        seconds = float(header) if header.isdecimal() else _BAN_SECONDS
        is_global = True
    return SlowDown(min(max(seconds, 0.0), _MAX_PAUSE_SECONDS), everywhere=is_global)


@contextmanager
def translated() -> Iterator[None]:
    """Raise the kit's exceptions instead of those of the libraries."""
    try:
        yield
    except FAULTS as problem:
        raise refusal_of(problem) from None


def refusal_of(problem: Exception) -> Refuse:
    """Return an exception of the libraries as the kit's."""
    if isinstance(problem, discord.RateLimited):
        return SlowDown(problem.retry_after, everywhere=False)
    if isinstance(problem, discord.LoginFailure):
        return Unauthorized()
    if isinstance(problem, discord.HTTPException):
        return _refusal_of_status(problem)
    if isinstance(problem, aiohttp.ClientConnectorError):
        return Refuse("Discord cannot be reached", retry_seconds=_RETRY_SECONDS)
    # Half a response is no JSON, or has another length than it says.
    return MaybePosted(f"no answer of Discord: {type(problem).__name__}")


def _refusal_of_status(problem: discord.HTTPException) -> Refuse:
    if problem.status == 401:
        return Unauthorized()
    known = _REASONS.get(problem.code)
    said = known or f"Discord refuses it: {problem.status} {problem.text}"[:_MAX_WORDS]
    if problem.code == UNKNOWN_MESSAGE:
        return GoneMessage(said)
    if problem.status in (403, 404) and problem.code == 0:
        # Not of the API: it is a proxy's, or the settings name another server.
        return Refuse(said, retry_seconds=_PROXY_SECONDS)
    if problem.status in (403, 404):
        return NoPermission(said)
    return Refuse(said)
