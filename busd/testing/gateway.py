"""The test kit of the gateway: a real hub with a real store, on a bus in memory.

    async with open_gateway() as kit:
        ann = await kit.connect(Stage, user="ann")
        await ann.receive("hello")
        words = kit.agent("bob").words()
        words.reply("hello yourself")
        await kit.settle()
        assert ann.take_frames() == [...]

Frames go in and come out; only sockets and time are simulated. `kit.advance` moves the time.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskStatus

from busd.bus.mail_policy import MailSettings
from busd.gateway.dialect import Dialect, Hello
from busd.gateway.effects import Close, Emit, Frame, Send
from busd.gateway.hub import Hub, KnownUser, Output, Session
from busd.gateway.settings import GatewayTable
from busd.gateway.store_thread import StoreThread
from busd.testing.answers import Handed
from busd.testing.bus import FakeClock, MemoryBus
from busd.testing.memory_client import MemoryClient
from busd.vocabulary.addresses import event_address

_CALM_ROUNDS = 3
_POLL_SECONDS = 0.001
_PATIENCE_SECONDS = 20.0


class Words:
    """A `tg_message` that an agent has got; it was acked."""

    def __init__(self, agent: GatewayAgent, handed: Handed) -> None:
        self.agent = agent
        self.handed = handed
        self.payload: dict[str, Any] = handed.payload
        self.content: dict[str, Any] = self.payload["content"]
        self.id: str = self.payload["messageId"]
        self.chat = handed.sender

    @property
    def text(self) -> str:
        return str(self.content["text"])

    def reply(self, text: str, *, message_id: str = "", **more: Any) -> None:
        """Answer; the same `message_id` means the same reply."""
        content = {"text": text, **more}
        beside = {"reply_to_message_id": self.id}
        self.agent.send(self.chat, "tg_reply", content, message_id or None, beside)

    def tell(self, event: str, **data: Any) -> None:
        """Send an event of this turn, for instance `turn.delta`."""
        self.agent.tell(self.chat, event, {"turn": self.id, **data})


class GatewayAgent:
    """An agent on the bus that does what the test says."""

    def __init__(self, bus: MemoryBus, name: str) -> None:
        self.name = name
        self._bus = bus
        self._ids = count(1)
        self.peer = bus.join(f"agent:{name}")

    def next(self) -> Handed:
        """Return the next message, not acked yet."""
        return self.peer.next_message()

    def words(self) -> Words:
        """Ack the next message, which is of a user, and return it."""
        handed = self.next()
        assert handed.payload["type"] == "tg_message", handed
        handed.ack()
        return Words(self, handed)

    def event(self) -> dict[str, Any]:
        """Ack the next message, which is an event, and return its name and data."""
        handed = self.next()
        assert handed.payload["type"] == "agent_event", handed
        handed.ack()
        return {"event": handed.payload["content"]["event"], **handed.payload["content"]["data"]}

    def send(
        self,
        to: str,
        type_name: str,
        content: dict[str, Any],
        message_id: str | None = None,
        beside: dict[str, Any] | None = None,
    ) -> None:
        """Send a message; the bus keeps it if nobody is there who answers for the address."""
        own = message_id or f"{self.name}.{next(self._ids)}"
        payload = {"type": type_name, "messageId": own, "content": content, **(beside or {})}
        key = f"{own}.{next(self._ids)}"
        self.peer.send(to, payload, message_id=own, delivery={"idempotencyKey": key})

    def tell(self, chat: str, event: str, data: dict[str, Any]) -> None:
        """Send an event to the `events:` address of a conversation."""
        content = {"event": event, "data": data}
        payload = {"type": "agent_event", "content": content}
        self.peer.send(event_address(chat), payload)


class GatewayClient:
    """A client of the gateway: a session, and what came out for it."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.session: Session
        self.dialect: Dialect

    async def receive(self, frame: Frame) -> None:
        """Pass a frame to the gateway, as if the client had sent it."""
        await self.session.receive(frame)

    def take(self) -> list[Output]:
        """Return what came out since the last time."""
        taken, self.outputs = self.outputs, []
        return taken

    def take_frames(self) -> list[Any]:
        """Return the frames that were sent since the last time, decoded if they are JSON."""
        return [_decoded(each.frame) for each in self.take() if isinstance(each, Send)]

    def take_events(self) -> list[tuple[str, Any]]:
        """Return the Socket.IO events that were emitted since the last time."""
        return [(each.event, each.data) for each in self.take() if isinstance(each, Emit)]

    @property
    def is_closed(self) -> bool:
        return any(isinstance(each, Close) for each in self.outputs)

    async def leave(self) -> None:
        """Lose the connection."""
        await self.session.close()


def _decoded(frame: Any) -> Any:
    if not isinstance(frame, str):
        return msgspec.to_builtins(frame)
    try:
        return msgspec.json.decode(frame)
    except msgspec.MsgspecError:
        return frame


class GatewayKit:
    """A gateway under test."""

    def __init__(
        self, folder: Path, bus: MemoryBus, settings: GatewayTable, clock: FakeClock
    ) -> None:
        self.folder = folder
        self.bus = bus
        self.settings = settings
        self.clock = clock
        self.tokens: dict[str, KnownUser] = {}  # for `Authenticate`
        self.clients: list[MemoryClient] = []
        self.hub: Hub
        self.store: StoreThread
        self._ids = count(1)

    async def __aenter__(self) -> GatewayKit:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        await self._start()
        return self

    async def __aexit__(self, *ended: Any) -> None:
        with anyio.CancelScope(shield=True):
            await self._stop(is_killed=False)
        await self._tasks.__aexit__(*ended)

    async def _start(self) -> None:
        self._stopping, self._stopped = anyio.Event(), anyio.Event()
        await self._tasks.start(self._run)
        with anyio.fail_after(_PATIENCE_SECONDS):
            while not self.hub.is_connected:
                await anyio.sleep(_POLL_SECONDS)
        await self.settle()

    async def _run(self, *, task_status: TaskStatus[None]) -> None:
        """Run the gateway in a task of its own, so that a test may end it anywhere."""
        self.store = StoreThread(self.folder / "gateway.db", self.settings.store, self.clock)
        self.hub = Hub(self.store, self.settings, make_client=self._make_client, clock=self.clock)
        try:
            with anyio.CancelScope() as self._life:
                async with self.store, self.hub.serving():
                    task_status.started()
                    await self._stopping.wait()
        finally:
            self._stopped.set()

    async def _stop(self, *, is_killed: bool) -> None:
        if is_killed:
            self._life.cancel()
        self._stopping.set()
        await self._stopped.wait()

    async def restart(self, *, seconds_away: float = 0.0, is_killed: bool = False) -> None:
        """Stop the gateway and start it again, with what it has stored; its clients are gone."""
        await self._stop(is_killed=is_killed)
        self.clock.now += seconds_away
        await self._start()

    def _make_client(self) -> MemoryClient:
        client = MemoryClient(self.bus, self.settings.name)
        self.clients.append(client)
        return client

    @property
    def line(self) -> MemoryClient:
        """The gateway's connection to the bus."""
        return self.clients[-1]

    async def connect(
        self,
        dialect: type[Dialect],
        *,
        user: str = "owner",
        is_owner: bool | None = None,
        **hello: Any,
    ) -> GatewayClient:
        """Return a client that has just connected; by default it is the owner's."""
        client = GatewayClient()
        owns = user == "owner" if is_owner is None else is_owner
        client.dialect = dialect(
            Hello(
                user=user,
                is_owner=owns,
                new_id=lambda: f"id-{next(self._ids)}",
                now=lambda: self.hub.timestamp(),
                sign=lambda url: f"{url}?signed" if url.startswith("http") else "",
                **hello,
            )
        )
        client.session = self.hub.connect(
            client.dialect,
            send=lambda output: client.outputs.append(output),
            user=user,
            is_owner=owns,
            find_user=self.tokens.get,
        )
        await client.session.open()
        return client

    def agent(self, name: str) -> GatewayAgent:
        """Return a new agent on the bus."""
        return GatewayAgent(self.bus, name)

    async def advance(self, seconds: float) -> None:
        """Move the time, of the gateway and of the bus, and do what is due."""
        await self.settle()
        self.clock.now += seconds
        self.bus.advance(seconds, step=seconds / 8)
        self.hub.look()
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is under way but what waits for agents, or for time."""
        calm = 0
        with anyio.fail_after(_PATIENCE_SECONDS):
            while calm < _CALM_ROUNDS:
                await anyio.sleep(_POLL_SECONDS)
                calm = 0 if self._is_busy() else calm + 1

    def _is_busy(self) -> bool:
        rooms = list(self.hub.rooms.values())
        return bool(
            self.store.waiting
            or any(client.handling for client in self.clients)
            or self.hub.bus.is_behind
            or any(not room.order.is_idle or room.outbox.is_behind for room in rooms)
        )


@asynccontextmanager
async def open_gateway(
    settings: GatewayTable | None = None, *, agent: str = "bob"
) -> AsyncIterator[GatewayKit]:
    """Run a gateway whose words go to `agent:bob`, unless they name another agent."""
    table = settings or GatewayTable(agent=f"agent:{agent}")
    clock = FakeClock(1_700_000_000.0)
    with tempfile.TemporaryDirectory(prefix="busd-gateway-") as folder:
        bus = MemoryBus(mail=MailSettings(), wall_clock=clock)
        async with GatewayKit(Path(folder), bus, table, clock) as kit:
            yield kit
