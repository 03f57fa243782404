"""Callbacks: answers are posted to the URLs that callers have named, until these accept them.

| what the URL does | what happens |
| --- | --- |
| answers 2xx | the answer is delivered |
| 408, 425, 429, 5xx, no connection | it is tried again, after 1, 2, 4, … 300 seconds |
| a time-out, half a response | it is tried again, and `is_repeat` says so |
| any other status, also a redirection | it is given up |
| a forbidden address | it is given up |
"""

from __future__ import annotations

import logging
import ssl
import time
from collections import Counter

import anyio
import h11
import msgspec
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from busd import Refuse
from busd.bridge import MaybePosted
from busd_plugins.hook.callers import Callers, sign
from busd_plugins.hook.destinations import (
    BadDestination,
    Destination,
    Resolve,
    Unresolved,
    find_destination,
    resolve,
)
from busd_plugins.hook.messages import Answer, CallbackBody
from busd_plugins.hook.store import Request

log = logging.getLogger("busd.bridge")

CONNECT_SECONDS = 10.0
POST_SECONDS = 30.0  # in all
_MAX_HEAD_BYTES = 16 * 1024
_MAX_AT_ONCE, _MAX_OF_A_HOOK = 128, 32
_LONGEST_PAUSE_SECONDS = 300.0
_TEMPORARY = (408, 425, 429)
_MAX_COUNTED = 10_000


class Callbacks:
    """Posts answers to callback URLs."""

    def __init__(
        self,
        callers: Callers,
        *,
        seconds: float,
        allow_private: bool,
        resolve: Resolve = resolve,
    ) -> None:
        self._callers = callers
        self._seconds = seconds
        self._allow_private = allow_private
        self._resolve = resolve
        self._attempts: Counter[str] = Counter()  # of answers, since this process was started
        self._under_way: Counter[str] = Counter()  # by hook

    async def check(self, url: str) -> None:
        """Raise BadDestination or Unresolved if nothing may be posted there."""
        await find_destination(url, allow_private=self._allow_private, resolve=self._resolve)

    async def deliver(
        self, request: Request, answer: Answer, since: float, *, is_repeat: bool
    ) -> None:
        """Post an answer; raise Refuse, with the time of the next attempt if there is one."""
        if time.time() - since > self._seconds:
            self._attempts.pop(answer.id, None)
            log.warning("a callback of the hook %s is given up: %s", request.hook, answer.id)
            raise Refuse(f"the callback URL did not accept it within {self._seconds:g} seconds")
        hook = request.hook
        if self._under_way.total() >= _MAX_AT_ONCE or self._under_way[hook] >= _MAX_OF_A_HOOK:
            raise Refuse("too many callbacks are under way", retry_seconds=1)
        self._under_way[hook] += 1
        try:
            await self._attempt(request, answer, is_repeat=is_repeat)
        finally:
            self._under_way[hook] -= 1
        self._attempts.pop(answer.id, None)

    async def _attempt(self, request: Request, answer: Answer, *, is_repeat: bool) -> None:
        try:
            destination = await find_destination(
                request.callback_url, allow_private=self._allow_private, resolve=self._resolve
            )
        except BadDestination as problem:
            raise Refuse(f"the callback URL is forbidden: {problem}") from None
        except Unresolved as problem:
            raise self._later(answer, str(problem)) from None
        body = msgspec.json.encode(
            CallbackBody(
                id=request.id,
                chat_id=request.chat_id.partition("/")[2],
                reply=answer,
                is_repeat=is_repeat,
            )
        )
        key = self._callers.find(request.hook).signing_key
        head = {
            "Host": destination.authority,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "User-Agent": "busd-hook",
            "Connection": "close",
            **sign(key, answer.id, body),
        }
        status, retry_after = await self._post(answer, destination, head, body)
        if 200 <= status < 300:
            return
        if status in _TEMPORARY or status >= 500:
            raise self._later(answer, f"the callback URL answered {status}", retry_after)
        raise Refuse(f"the callback URL answered {status}")

    def _later(self, answer: Answer, reason: str, seconds: float = 0.0) -> Refuse:
        """Return a refusal with the time of the next attempt."""
        if len(self._attempts) >= _MAX_COUNTED:
            self._attempts.clear()
        pause = min(2.0 ** min(self._attempts[answer.id], 20), _LONGEST_PAUSE_SECONDS)
        self._attempts[answer.id] += 1
        return Refuse(reason, retry_seconds=min(max(pause, seconds), _LONGEST_PAUSE_SECONDS))

    async def _post(
        self, answer: Answer, destination: Destination, head: dict[str, str], body: bytes
    ) -> tuple[int, float]:
        """Return the status, and the seconds of `Retry-After`; raise Refuse."""
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                stream = await connect(destination)
        except (OSError, ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream) as problem:
            reason = str(problem) or type(problem).__name__
            raise self._later(answer, f"no connection to {destination.host}: {reason}") from None
        reason = "no complete response of the callback URL"
        try:
            with anyio.fail_after(POST_SECONDS - CONNECT_SECONDS):
                return await _exchange(stream, destination.target, head, body)
        except (TimeoutError, OSError, anyio.BrokenResourceError, anyio.EndOfStream):
            pass
        except h11.RemoteProtocolError as problem:
            reason = f"the response of the callback URL is not HTTP: {problem}"
        finally:
            await anyio.aclose_forcefully(stream)
        seconds = self._later(answer, reason).retry_seconds or 1.0
        raise MaybePosted(reason, retry_seconds=seconds)


async def connect(destination: Destination) -> ByteStream:
    """Connect to one of the addresses that were checked; raise OSError."""
    problem: OSError = OSError(f"{destination.host} has no address")
    for address in destination.addresses:
        try:
            stream: ByteStream = await anyio.connect_tcp(address, destination.port)
        except OSError as failure:
            problem = failure
            continue
        if not destination.is_encrypted:
            return stream
        try:
            return await TLSStream.wrap(
                stream,
                hostname=destination.host,
                ssl_context=ssl.create_default_context(),
                standard_compatible=False,
            )
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
    raise problem


async def _exchange(
    stream: ByteStream, target: str, head: dict[str, str], body: bytes
) -> tuple[int, float]:
    """Post, and read the head of the response; its body is of no interest."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
    request = h11.Request(method="POST", target=target, headers=list(head.items()))
    sent = (http.send(each) for each in (request, h11.Data(body), h11.EndOfMessage()))
    await stream.send(b"".join(each for each in sent if each))
    while True:
        event = http.next_event()
        if isinstance(event, h11.Response):
            return event.status_code, _seconds_of(list(event.headers))
        if isinstance(event, h11.ConnectionClosed):
            raise anyio.EndOfStream
        if event is h11.NEED_DATA:
            try:
                http.receive_data(await stream.receive())
            except anyio.EndOfStream:
                http.receive_data(b"")


def _seconds_of(headers: list[tuple[bytes, bytes]]) -> float:
    for name, value in headers:
        if name == b"retry-after" and value.isdigit() and len(value) < 6:
            return float(value)
    return 0.0
