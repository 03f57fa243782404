"""`Bridge`: what a program needs to connect the users of another chat system to the bus.

user → `push` → system:route → agent → `tg_reply` → `Lanes` → `post` → user
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from busd.bridge.bus_link import BusLink
from busd.bridge.hearing import (
    IGNORED,
    begin_turn,
    read_event,
    refusal_of_type,
    reply_of,
    show_event,
)
from busd.bridge.lanes import Lanes
from busd.bridge.lease import lease_secret, lock_folder
from busd.bridge.ledger import Ledger
from busd.bridge.messages import ChatEvent, Inbound, Part, Reply
from busd.bridge.pace import Pace
from busd.bridge.pacer import Pacer
from busd.bridge.posting import Post, Posting, Show, Split
from busd.bridge.pushing import (
    ROUTE,
    cancel_payload,
    key_of,
    payload_of,
    send_until_accepted,
)
from busd.bridge.refusals import TooLarge
from busd.bridge.secrets import Secret
from busd.bridge.status import STATUS, BridgeState, BridgeStatus
from busd.bus.address import MAX_CHARACTERS, check_address, check_name
from busd.bus.message import Receipt
from busd.client.client import Client
from busd.client.incoming import Incoming
from busd.client.run import Loop, run
from busd.errors import CallRefused, MalformedAddress, Refuse
from busd.vocabulary.addresses import EVENTS_PREFIX, channel_of, event_address
from busd.vocabulary.payload import now

log = logging.getLogger("busd.bridge")

Hear = Callable[[ChatEvent], Awaitable[None]]
Take = Callable[[Incoming], Awaitable[Any]]
_PREFIX = re.compile(r"[a-z][a-z0-9_.-]{0,31}")
_CONCURRENCY = 64  # handlers besides those of replies that wait
S = TypeVar("S", bound=Split)
P = TypeVar("P", bound=Post)
W = TypeVar("W", bound=Show)
H = TypeVar("H", bound=Hear)
T = TypeVar("T", bound=Take)


class Bridge:
    """A peer of the bus that speaks for the chats of another system.

        bridge = Bridge("irc-bridge", "irc", state=Path("/var/lib/irc-bridge"))

        @bridge.posts
        async def post(part: Part) -> str:
            return await irc.say(part.chat_id, part.text)

        async with bridge:
            await bridge.push(Inbound(chat_id="#busd", text="hi", sender_id="ann", external_id="1"))

    The address of a chat is `irc:#busd`. `state` is a folder of this bridge alone. `pace` may be
    replaced before the bridge is entered.
    """

    def __init__(
        self,
        name: str,  # of the peer; without a prefix
        prefix: str,
        *,
        state: Path | str,
        channel: str = "",  # default: that of the prefix
        pace: Pace = Pace(),  # noqa: B008 - immutable
        address: str | None = None,  # of the bus
        token: str = "",
    ) -> None:
        check_name(name)
        if ":" in name:
            # A peer whose name has no prefix answers first-hand for all its patterns.
            raise ValueError(f"the name of a bridge has no prefix: {name!r}")
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(
                f"the prefix of a bridge is like irc: letters and digits, not {prefix!r}"
            )
        self.name = name
        self.prefix = prefix
        self.channel = channel or channel_of(prefix)
        self.pace = pace
        self.state = Path(state)
        self._bus = BusLink(self._make_client, (event_address(f"{prefix}:*"), f"{prefix}:*"))
        self._address, self._token = address, token
        self._status = BridgeStatus()
        self._split: Split = _in_one_part
        self._post: Post | None = None
        self._show: Show | None = None
        self._hear: Hear | None = None
        self._takers: dict[str, Take] = {}  # by type: messages to the bridge itself
        self._is_entered = False

    def __repr__(self) -> str:
        return f"<Bridge {self.name} of {self.prefix}:*>"

    # What the program registers

    def splits(self, function: S) -> S:
        """Register the function that splits a reply; it is plain, and splits it the same each time.

        Default: one part with the whole text. A reply without parts is acked.
        """
        self._split = function
        return function

    def posts(self, function: P) -> P:
        """Register the function that posts a part and returns its external id.

        If it raises, the part is known not to be posted. `Refuse` is permanent; with
        `retry_seconds` the part is posted again. `SlowDown` pauses all chats. `MaybePosted` says
        that the outcome is not known. Any other exception is logged, and the bus delivers the
        reply again later.
        """
        self._post = function
        return function

    def shows(self, function: W) -> W:
        """Register the function that shows a turn: "typing…", streamed text, prompts, errors.

        It is called when something has changed, at most every `pace.show_seconds`, and every
        `pace.refresh_seconds` while the agent works. It sets `draft`, `prompt.external_id` and
        `error.external_id` of the turn where it has posted something.
        """
        self._show = function
        return function

    def hears(self, function: H) -> H:
        """Register the function that gets the events of chats that belong to no turn."""
        self._hear = function
        return function

    def takes(self, type_name: str) -> Callable[[T], T]:
        """Register the function that gets messages of a type that are sent to the bridge's name.

        What it returns is the content of the ack; `Refuse` declines.
        """

        def register(function: T) -> T:
            self._takers[type_name] = function
            return function

        return register

    # Life

    async def __aenter__(self) -> Bridge:
        """Open the ledger, and connect to the bus in the background; raise ConfigError."""
        if self._post is None:
            raise RuntimeError("a bridge needs a function to post: put @bridge.posts above one")
        with ExitStack() as opened:
            opened.enter_context(lock_folder(self.state))
            self._ledger = Ledger(self.state / "bridge.db")
            opened.callback(self._ledger.close)
            self._pacer = Pacer(self.pace)
            self._posting = Posting(
                self._ledger, self._pacer, self._status, self._split, self._post
            )
            self._posting.show_function = self._show
            self._tasks: TaskGroup = anyio.create_task_group()
            await self._tasks.__aenter__()
            self._lanes = Lanes(self._posting, self._tasks)
            self._bus.open()
            self._tasks.start_soon(self._bus.run)
            self._opened = opened.pop_all()
        self._is_entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Finish the posts under way, within `pace.stop_seconds`, and leave the bus."""
        self._is_entered = False
        self._tasks.cancel_scope.cancel()
        self._posting.stop()
        try:
            if isinstance(problem, Exception):
                # Raised as it is, not in the exception group that the task group would create.
                await self._tasks.__aexit__(None, None, None)
                return None
            return await self._tasks.__aexit__(kind, problem, trace)
        finally:
            self._opened.close()

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; raise BusdError if the bus refuses us permanently.

        Enters the bridge unless the program has done that. Reports "started" on the bus.
        """
        if self._is_entered:
            await self._serve(task_status)
            return
        async with self:
            await self._serve(task_status)

    async def _serve(self, task_status: TaskStatus[None]) -> None:
        await self._bus.client()
        task_status.started()
        await self._bus.wait_for_end()

    def run(self, loop: Loop = "asyncio") -> None:
        """Serve until the program is told to end (SIGTERM or Ctrl-C)."""
        run(self.serve, loop=loop)

    def _make_client(self) -> Client:
        client = Client(
            self.name,
            address=self._address,
            token=self._token,
            info={"name": "busd bridge", "pid": os.getpid()},
            concurrency=self.pace.max_waiting + _CONCURRENCY,
        )
        client.on()(self._take)
        return client

    # Messages of users

    async def push(self, inbound: Inbound, *, to: str = "", expect: bool = False) -> Receipt:
        """Send a message of a user; return when the bus has accepted it durably.

        While the bus is away or busy, try again until cancelled. So confirm a message to the other
        system only after this has returned. Raise CallRefused (`PushRefused` if the addressee has
        refused it) where that never helps, TooLarge, and ValueError for a chat without an address.

        `to` is an agent, instead of that of the chat; with `expect`, raise PushRefused at once if
        no such agent is connected, instead of keeping the message for it.
        """
        sender = self.address_of(inbound.chat_id)
        payload = payload_of(inbound, sender, self.channel)
        self.note_update()
        await self._bus.client()
        turn = begin_turn(self._lanes, inbound) if self._show else None
        is_accepted = False
        try:
            receipt = await send_until_accepted(
                self._bus.client,
                to or ROUTE,
                payload,
                sender,
                key_of(self.prefix, inbound.external_id),
                durable=not expect,
            )
            is_accepted = not receipt.is_duplicate
        except (CallRefused, TooLarge) as refusal:
            self._status.refused += 1
            log.warning("a message of %s was refused: %s", sender, refusal)
            raise
        finally:
            if turn is not None and not is_accepted:
                self._lanes.drop_turn(turn.chat_id, turn.turn)
        self._status.pushed += 1
        return receipt

    async def cancel(self, chat_id: str, turn: str = "") -> None:
        """End a turn of a chat, or the one that runs; raise BusdError if that fails."""
        sender = self.address_of(chat_id)
        client = await self._bus.client()
        payload = cancel_payload(sender, self.channel, chat_id, turn)
        receipt = await client.send(ROUTE, payload, sender=sender, caused_by="")
        for ack in receipt.acks:
            if not ack.success:
                raise Refuse(ack.message)
        self._lanes.end_unanswered(chat_id, turn)

    def address_of(self, chat_id: str) -> str:
        """Return the address of a chat; raise ValueError if it can have none."""
        address = f"{self.prefix}:{chat_id}"
        try:
            check_address(event_address(address))
        except MalformedAddress as problem:
            raise ValueError(f"chat_id {chat_id[:MAX_CHARACTERS]!r}: {problem}") from None
        return address

    # Messages of the bus

    async def _take(self, message: Incoming) -> Any:
        """Process a message of the bus; return what its ack contains."""
        if message.to == self.name:
            return await self._answer(message)
        chat_id = message.to.removeprefix(EVENTS_PREFIX).removeprefix(f"{self.prefix}:")
        if message.type == "tg_reply":
            await self._lanes.take(reply_of(message, chat_id))
        elif message.type == "agent_event":
            await self._take_event(read_event(message, chat_id))
        elif message.type not in IGNORED:
            raise refusal_of_type(message.type)
        return None

    async def _take_event(self, event: ChatEvent) -> None:
        if event.name.startswith("turn."):
            if self._show is not None:
                show_event(self._lanes, event)
        elif self._hear is not None:
            await self._hear(event)

    async def _answer(self, message: Incoming) -> Any:
        if message.type == STATUS:
            return msgspec.to_builtins(self.status)
        if taker := self._takers.get(message.type):
            return await taker(message)
        if message.type not in IGNORED:
            known = ", ".join([STATUS, *self._takers])
            raise Refuse(f"a bridge itself answers {known} only")
        return None

    # Status

    @property
    def status(self) -> BridgeStatus:
        """What the bridge does just now."""
        status = msgspec.structs.replace(self._status, is_on_bus=self._bus.is_connected)
        if self._is_entered:
            status.queue = len(self._lanes)
            status.is_disk_failing = self._ledger.is_failing
            if paused := self._pacer.paused_seconds:
                until = datetime.now(UTC) + timedelta(seconds=paused)
                status.paused_until = until.isoformat(timespec="seconds").replace("+00:00", "Z")
        return status

    def report(self, state: BridgeState, detail: str = "") -> None:
        """Report the state of the other system's side; a change is logged."""
        if (state, detail) != (self._status.state, self._status.detail):
            level = logging.INFO if state == "connected" else logging.WARNING
            log.log(level, "%s is %s%s", self.name, state, detail and f": {detail}")
        self._status.state, self._status.detail = state, detail

    def note_update(self) -> None:
        """Record that something came from the other system; `push` does so by itself."""
        self._status.last_update_at = now()
        self._status.note_contact()

    def lease(self, secret: Secret | str) -> AbstractContextManager[None]:
        """Make sure that no other process of this user on this host uses the same secret.

        Raise ConfigError with the pid of the process that does.
        """
        return lease_secret(secret)


def _in_one_part(reply: Reply) -> list[Part]:
    return [Part(reply.text)] if reply.text or reply.attachments else []
