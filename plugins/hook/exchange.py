"""The exchange: messages of callers go to the bus, replies come back to whoever waits for them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from uuid import uuid4

import anyio
import msgspec

from busd import Bridge, BusdError, CallRefused, Refuse
from busd.bridge import Inbound, Part, TooLarge
from busd_plugins.hook.callbacks import Callbacks
from busd_plugins.hook.callers import Caller
from busd_plugins.hook.errors import HookError
from busd_plugins.hook.messages import Answer, Outcome, Posted, State
from busd_plugins.hook.store import KeptReply, Request, Store, StoreFailed, TooManyReplies

log = logging.getLogger("busd.bridge")

ACCEPT_SECONDS = 10.0  # for the bus to accept a message
_RETRY_SECONDS = 5
_STATES: dict[str, State] = {"new": "waiting", "accepted": "waiting"}


class Exchange:
    """What happens between the HTTP side and the bridge."""

    def __init__(self, bridge: Bridge, store: Store, callbacks: Callbacks) -> None:
        self._bridge = bridge
        self._store = store
        self._callbacks = callbacks
        self._is_released = False
        self._waiting: defaultdict[str, set[anyio.Event]] = defaultdict(set)
        bridge.posts(self.post)

    # Messages of callers

    async def accept(self, caller: Caller, posted: Posted, key: str, body: bytes) -> Request:
        """Keep a message and push it; return it, or the one of the same key. Raise HookError."""
        chat_id = f"{caller.name}/{posted.chat_id}"
        try:
            self._bridge.address_of(chat_id)
        except ValueError as problem:
            raise HookError(400, "bad_request", str(problem)) from None
        digest = sha256(body).digest()
        new = Request(uuid4().hex, caller.name, digest, chat_id, posted.callback_url)
        with _storing():
            request = await self._store.begin(new, key, posted.prompt_id)
        if request.digest != digest:
            words = "another message was posted with this idempotency key"
            raise HookError(422, "key_reused", words, id=request.id)
        if request.state == "new":
            await self._push(request, caller, posted)
        return request

    async def _push(self, request: Request, caller: Caller, posted: Posted) -> None:
        inbound = Inbound(
            chat_id=request.chat_id,
            text=posted.text,
            sender_id=posted.sender_id or caller.name,
            external_id=request.id,
            username=posted.username,
            full_name=posted.full_name,
            attachments=posted.attachments,
            thread_id=posted.thread_id,
            prompt_id=posted.prompt_id,
            metadata=posted.metadata,
        )
        try:
            with anyio.fail_after(ACCEPT_SECONDS):
                await self._bridge.push(inbound)
        except TooLarge as problem:
            with _storing():
                await self._store.forget(request)
            raise HookError(413, "too_large", str(problem)) from None
        except CallRefused as refusal:
            with _storing():
                await self._store.refuse(request, str(refusal))
        except (TimeoutError, BusdError) as problem:
            reason = str(problem) if isinstance(problem, BusdError) else "it is away or busy"
            log.warning("a message of the hook %s is not accepted: %s", caller.name, reason)
            words = f"the bus cannot take it now: {reason}; post it again with the same key"
            raise HookError(
                503, "bus_unavailable", words, retry_seconds=_RETRY_SECONDS, id=request.id
            ) from None
        else:
            with _storing():
                await self._store.accept(request)

    # Replies

    async def outcome(self, request: Request) -> Outcome:
        """Return what has become of a request; raise HookError if it was refused."""
        with _storing():
            subject = await self._store.find(request.hook, request.subject) or request
            kept = await self._store.replies(subject.id)
            if request.follows:
                request = await self._store.find(request.hook, request.id) or request
        for each in (request, subject):
            if each.state == "refused":
                raise HookError(422, "refused", each.reason, id=each.id)
        replies = [_answer_of(each) for each in kept]
        return Outcome(
            id=subject.id,
            state=_STATES.get(subject.state) or subject.state,  # type: ignore[arg-type]  # the others are the same
            chat_id=subject.chat_id.partition("/")[2],
            text=replies[-1].text if replies else "",
            replies=replies,
        )

    async def find(self, caller: Caller, request_id: str) -> Request:
        """Return a request of a caller; raise HookError."""
        with _storing():
            request = await self._store.find(caller.name, request_id)
        if request is None:
            words = f"there is no message {request_id[:80]!r} of this hook; they are kept 7 days"
            raise HookError(404, "unknown_message", words)
        return request

    async def wait(self, request: Request, seconds: float) -> Outcome:
        """Return what has become of a request, as soon as it is answered or the time is up."""
        came = anyio.Event()
        waiting = self._waiting[request.subject]
        waiting.add(came)
        try:
            outcome = await self.outcome(request)
            if outcome.state == "waiting" and seconds > 0 and not self._is_released:
                with anyio.move_on_after(seconds):
                    await came.wait()
                outcome = await self.outcome(request)
            return outcome
        finally:
            waiting.discard(came)
            if not waiting:
                self._waiting.pop(request.subject, None)

    def release(self) -> None:
        """Let nobody wait any longer: the gateway stops."""
        self._is_released = True
        for waiting in self._waiting.values():
            for event in waiting:
                event.set()

    async def post(self, part: Part) -> str:
        """Keep a reply, and deliver it to the callback URL of its request."""
        reply = part.reply
        answer = Answer(
            id=part.nonce,
            text=part.text,
            sender=reply.sender,
            prompt_id=reply.prompt_id,
            thread_id=reply.thread_id,
            attachments=reply.attachments,
            metadata=reply.metadata,
        )
        try:
            request = await self._store.find_for(reply.chat_id, reply.reply_to)
            if request is None:
                raise Refuse("nobody has posted a message in this chat, or it is forgotten")
            body = msgspec.json.encode(answer)
            kept = await self._store.add(request, part.nonce, body, is_prompt=bool(reply.prompt_id))
            for event in self._waiting.get(request.id, ()):
                event.set()
            if request.callback_url and not kept.callback:
                await self._call_back(request, answer, kept, is_repeat=part.is_repeat)
        except StoreFailed as problem:
            log.error("%s", problem)
            raise Refuse(str(problem), retry_seconds=_RETRY_SECONDS) from None
        except TooManyReplies:
            raise Refuse("this message has as many replies as it may have") from None
        return part.nonce

    async def _call_back(
        self, request: Request, answer: Answer, kept: KeptReply, *, is_repeat: bool
    ) -> None:
        try:
            await self._callbacks.deliver(request, answer, kept.at, is_repeat=is_repeat)
        except Refuse as refusal:
            if refusal.retry_seconds is None:
                await self._store.note_callback(request, answer.id, refusal.reason)
            raise
        await self._store.note_callback(request, answer.id, "delivered")


def _answer_of(kept: KeptReply) -> Answer:
    answer = msgspec.json.decode(kept.body, type=Answer)
    answer.callback = kept.callback
    return answer


@contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except StoreFailed as problem:
        log.error("%s", problem)
        words = "the gateway cannot keep messages now; see its log"
        raise HookError(503, "cannot_store", words, retry_seconds=_RETRY_SECONDS) from None
