"""The hub: brings together the sessions of clients, the conversations that are kept, and the bus.

client → host → `Session.receive` → `Dialect.receive` → effects → `performing` → store, outbox
bus → `BusSide` → `receiving` → store → `Room.show` → `Dialect.show` → `send` → host → client
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import structlog
from ulid import ULID

from busd.client.client import Client
from busd.errors import BusdError, Refuse
from busd.gateway.beginnings import Beginnings
from busd.gateway.bus_side import BusClient, BusSide
from busd.gateway.deadlines import check_deadlines
from busd.gateway.dialect import Dialect
from busd.gateway.entering import depart
from busd.gateway.receiving import arrival_of, receive
from busd.gateway.refusal import Refusal, stopping
from busd.gateway.room import Room
from busd.gateway.session import FindUser, KnownUser, Output, SendOutput, Session
from busd.gateway.store import Store
from busd.gateway.stored import Conversation, StoreFailed, StoreRefusal, StoreTotals
from busd.vocabulary.addresses import EVENTS_PREFIX

if TYPE_CHECKING:
    from busd.client.incoming import Incoming
    from busd.gateway.settings import GatewayTable
    from busd.gateway.store_thread import StoreThread

__all__ = ["FindUser", "Hub", "KnownUser", "Output", "Overview", "SendOutput", "Session"]

log = structlog.get_logger("busd.gateway")

MAX_HELD = 8_000  # conversations: the bus allows a peer 16,384 subscriptions
MAX_HELD_BY_USER = MAX_HELD // 2  # so that nobody keeps all others out
STATUS = "gateway_status"
_CONCURRENCY = 1_024  # messages of the bus that wait for the disk
_LOOK_SECONDS = 0.5  # between two looks at what is due
_UPKEEP_SECONDS = 600.0
_COUNT_SECONDS = 1.0
_DRAIN_SECONDS = 2.0


class Overview(msgspec.Struct, kw_only=True):
    """What the gateway does just now, for `/status` and `busd gateway status`."""

    listening: list[str]  # host and port of each listener
    is_connected: bool  # to the bus
    sessions: dict[str, int]  # clients by the prefix of their dialect
    users: int
    conversations: int  # held in memory
    turns: int  # open, in all conversations that are held
    prompts: int
    unsent: int  # messages that wait for the bus
    is_disk_failing: bool
    stored: StoreTotals | None  # None: the disk has not answered yet


class Hub:
    """All sessions and conversations of one gateway."""

    def __init__(
        self,
        store: StoreThread,
        settings: GatewayTable,
        *,
        make_client: Callable[[], BusClient] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create a hub; by default its peer is found on the bus as any `Client` finds it."""
        self.store = store
        self.settings = settings
        self.clock = clock
        self.sessions: set[Session] = set()
        self.beginnings = Beginnings(settings.limits)
        self.rooms: dict[str, Room] = {}  # conversations that are held, by session id
        self._held_by: Counter[str] = Counter()  # the same, by the user who created them
        self.bus = BusSide(make_client or self._make_client, self._take)
        self._is_serving = False
        self.listening: list[str] = []  # set by whoever listens
        self._stored: StoreTotals | None = None

    def _make_client(self) -> BusClient:
        info = {"name": "busd gateway"}
        return Client(self.settings.name, info=info, concurrency=_CONCURRENCY)

    def new_id(self) -> str:
        """Return an id that nothing else has."""
        return str(ULID()).lower()

    def timestamp(self) -> str:
        """Return the time in the format of payloads."""
        now = datetime.fromtimestamp(self.clock(), UTC)
        return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    # Life

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Connect to the bus and take up what is open; at the end let go of everything.

        The store is opened and closed by the caller. Without a bus it is tried again and again, and
        what clients say is kept until then. Raise CallRefused if the bus refuses us permanently.
        """
        problem: BusdError | None = None
        async with anyio.create_task_group() as self.tasks:
            with self.bus:
                self._is_serving = True

                async def stay_connected() -> None:
                    nonlocal problem
                    try:
                        await self.bus.run()
                    except BusdError as refusal:
                        problem = refusal  # raised as it is, not in the group we would make of it
                        self.tasks.cancel_scope.cancel()

                await self._take_up()
                self.tasks.start_soon(stay_connected)
                self.tasks.start_soon(self._look_forever)
                self.tasks.start_soon(self._keep_up)
                try:
                    yield
                finally:
                    with anyio.move_on_after(_DRAIN_SECONDS, shield=True):
                        await self._drain()
                    self._is_serving = False
                    self.tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem

    async def _take_up(self) -> None:
        """Hold the conversations in which something is open."""
        after = ""
        while found := await self.store.run(partial(Store.unfinished, after=after)):
            for conversation in found:
                try:
                    room = self.hold(conversation)
                except Refusal as refusal:
                    log.warning("conversation.not_held", reason=refusal.reason)
                    continue  # until its clients enter it
                room.order.put(room.load)
            after = found[-1].session_id

    async def _drain(self) -> None:
        """Let all clients leave, and keep what the open answers are so far."""
        for session in list(self.sessions):
            await session.close()
        for room in list(self.rooms.values()):
            room.order.put(room.save)
        while any(not room.order.is_idle for room in self.rooms.values()):
            await anyio.sleep(0.01)

    # Clients

    def connect(
        self,
        dialect: Dialect,
        *,
        send: SendOutput,
        user: str = "",
        is_owner: bool = False,
        find_user: FindUser | None = None,
    ) -> Session:
        """Return the session of a new client; `find_user` is for the effect `Authenticate`."""
        session = Session(self, dialect, send, user, is_owner=is_owner, find_user=find_user)
        self.sessions.add(session)
        return session

    def leave_soon(self, room: Room, session: Session) -> None:
        """Let a client leave a conversation; it is shown nothing more."""
        if self._is_serving:
            room.order.put(partial(depart, room, session))

    # Conversations

    def hold(self, conversation: Conversation) -> Room:
        """Return the room of a conversation, which receives messages of the bus from now on."""
        room = self.rooms.get(conversation.session_id)
        if room is None:
            self._check_hold(conversation.user)
            room = self.rooms[conversation.session_id] = Room(self, conversation)
            self._held_by[conversation.user] += 1
            self.bus.hold(conversation.address)
        elif conversation.is_room:
            room.conversation = conversation  # it may have become one just now
        return room

    def _check_hold(self, user: str) -> None:
        """Raise Refusal if no conversation of a user can be held just now."""
        if not self._is_serving:
            raise stopping()
        if len(self.rooms) >= MAX_HELD:
            reason = "too many conversations are open on this gateway; try again later"
        elif self._held_by[user] >= MAX_HELD_BY_USER:
            reason = f"too many conversations of {user} are open; leave one first"
        else:
            return
        raise Refusal("limit", reason, retry_seconds=60.0, detail="conversations")

    def release(self, room: Room) -> None:
        """Let go of a conversation; the bus keeps what agents say from now on."""
        if self.rooms.get(room.session_id) is room:
            del self.rooms[room.session_id]
            user = room.conversation.user
            self._held_by[user] -= 1
            if not self._held_by[user]:
                del self._held_by[user]
            self.bus.release(room.chat.address)

    def room_at(self, address: str) -> Room | None:
        """Return the conversation that an address, or its `events:` address, belongs to."""
        address = address.removeprefix(EVENTS_PREFIX)
        room = self.rooms.get(address.rpartition(":")[2])
        return room if room and room.chat.address == address else None

    # The bus

    async def _take(self, message: Incoming) -> Any:
        """Process a message of the bus; return what its ack contains."""
        if message.to == self.settings.name:
            if message.type == STATUS:
                return msgspec.to_builtins(await self.counted())
            raise Refuse(f"the gateway itself answers {STATUS} only")
        await receive(self, arrival_of(message), message.type)
        return None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the bus now."""
        return self.bus.is_connected

    # What is due

    async def _look_forever(self) -> None:
        while True:
            await anyio.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """End what is due, and record what clients were shown."""
        rooms = list(self.rooms.values())
        check_deadlines(rooms, self.clock(), self.settings.turn_seconds)
        for room in rooms:
            room.record_cursors()

    async def _keep_up(self) -> None:
        while True:
            try:
                await self.store.upkeep(lambda: self.rooms)
            except (StoreFailed, StoreRefusal) as problem:
                log.warning("upkeep.failed", reason=str(problem))
            await anyio.sleep(_UPKEEP_SECONDS)

    async def counted(self) -> Overview:
        """Return the overview with what is stored now, or a while ago if the disk is slow."""
        with anyio.move_on_after(_COUNT_SECONDS), suppress(StoreFailed, StoreRefusal):
            self._stored = await self.store.run(lambda store: store.totals())
        return self.overview()

    def overview(self) -> Overview:
        """Return counts of what the gateway does just now."""
        rooms = self.rooms.values()
        return Overview(
            listening=self.listening,
            is_connected=self.is_connected,
            sessions=dict(Counter(each.dialect.prefix for each in self.sessions)),
            users=len({each.user for each in self.sessions if each.user}),
            conversations=len(rooms),
            turns=sum(len(each.turns) for each in rooms),
            prompts=sum(len(each.prompts) for each in rooms),
            unsent=sum(len(each.outbox) for each in rooms),
            is_disk_failing=self.store.is_failing,
            stored=self._stored,
        )
