"""Socket.IO: a dialect for each namespace that a client connects to, over Engine.IO."""

from __future__ import annotations

import secrets
from typing import Any

import structlog

from busd.errors import QuotaExceeded
from busd.gateway import socket_io_packet as packets
from busd.gateway.client import Client
from busd.gateway.clients import Clients
from busd.gateway.dialect import Dialect
from busd.gateway.effects import Acknowledge, Close, Emit, SocketFrame
from busd.gateway.engine_io import EngineIo, Opening
from busd.gateway.engine_session import TEMPORARY, EngineSession
from busd.gateway.hub import Output
from busd.gateway.identity import Denied, Identity
from busd.gateway.limits import Allowance, cost_of
from busd.gateway.origins import base_url
from busd.gateway.socket_io_packet import BadPacket, Kind, Packet, parse_packet

log = structlog.get_logger("busd.gateway")

# Packets that no client of a namespace pays for: CONNECT, DISCONNECT, and what is malformed.
_OTHERS_PER_SECOND, _OTHERS_AT_ONCE = 10.0, 50.0


class AckFrame(SocketFrame):
    """An event whose sender waits for the ack of this number."""

    number: int = 0


class SocketIo:
    """An ASGI application: all clients of one dialect."""

    def __init__(self, clients: Clients, dialect: type[Dialect]) -> None:
        self.clients = clients
        self.dialect = dialect
        self.engine = EngineIo(clients, dialect.max_frame_bytes, self._make_receiver)

    def _make_receiver(self, session: EngineSession, opening: Opening) -> Namespaces:
        return Namespaces(self, session, opening)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.engine(scope, receive, send)


class Namespaces:
    """What one session is connected to."""

    def __init__(self, socket_io: SocketIo, session: EngineSession, opening: Opening) -> None:
        self._socket_io = socket_io
        self._clients = socket_io.clients
        self._session = session
        self._opening = opening
        self._others = Allowance(_OTHERS_PER_SECOND, _OTHERS_AT_ONCE)
        self.open: dict[str, Client] = {}

    async def receive(self, message: str) -> None:
        """Process a packet of Socket.IO."""
        namespace = ""
        try:
            packet = parse_packet(message)
            namespace = packet.namespace
            await self._process(packet, len(message))
        except BadPacket as problem:
            await self.decline("invalid", str(problem), namespace)

    async def _process(self, packet: Packet, size: int) -> None:
        client = self.open.get(packet.namespace)
        if packet.kind is Kind.EVENT and client is not None:
            if await client.admit(size):
                await client.pass_on(_frame_of(packet))
        elif packet.kind is Kind.CONNECT:
            await self._pause(cost_of(size))
            if self._session.is_open:  # nobody would end a client that begins after that
                await self._connect(packet)
        elif packet.kind is Kind.DISCONNECT and client is not None:
            del self.open[packet.namespace]
            await client.end()
            self._expect_more()
        elif packet.kind in (Kind.BINARY_EVENT, Kind.BINARY_ACK):
            raise BadPacket("binary attachments are not read")
        else:
            await self._pause()

    async def decline(self, rule: str, reason: str, namespace: str = "") -> None:
        """Refuse what is no event; the namespace that it names shows that, or any."""
        client = self.open.get(namespace) or next(iter(self.open.values()), None)
        if client is not None:
            await client.decline(rule, reason)
        else:
            await self._pause()

    def lost(self) -> None:
        """End all clients: their connection is closed."""
        ended, self.open = self.open, {}
        for client in ended.values():
            self._clients.end_soon(client)

    async def _pause(self, cost: float = 1.0) -> None:
        await self._session.pause(self._others.charge(cost))

    # Namespaces

    async def _connect(self, packet: Packet) -> None:
        namespace = packet.namespace
        try:
            if namespace not in self._socket_io.dialect.namespaces:
                raise Denied(404, "Invalid namespace")
            if namespace in self.open:
                raise Denied(400, "Already connected to this namespace")
            identity = self._identify(packet.data)
        except Denied as denied:
            reason = denied.text.strip()
        except QuotaExceeded as full:
            reason = full.message
        else:
            await self._open(namespace, identity)
            return
        self._send(packets.encode_refused(namespace, reason))

    def _identify(self, data: Any) -> Identity:
        """Return who connects, by the `auth` of the client or by its first request."""
        token = data.get("token") if isinstance(data, dict) else None
        identity = self._opening.identity
        if isinstance(token, str) and token:
            identity = self._clients.identities.of_token(token)
        if identity.user:
            self.admit(identity)
        return identity

    def admit(self, identity: Identity) -> None:
        """Let the session use what a user may; raise QuotaExceeded."""
        if self._session.place is not None:
            self._session.place.become(identity.user)
            self._socket_io.engine.allow(self._session)

    async def _open(self, namespace: str, identity: Identity) -> None:
        opening = self._opening
        sid = secrets.token_urlsafe(15)
        hello = self._clients.make_hello(
            identity,
            base=base_url(opening.headers),
            query=dict(opening.query),
            path=opening.path,
            namespace=namespace,
            socket_id=sid,
        )
        line = NamespaceLine(self, namespace)
        client = Client(self._clients, line, self._socket_io.dialect, hello, identity)
        self.open[namespace] = client
        self._clients.settle(self._session)
        self._send(packets.encode_connected(namespace, sid))
        await client.open()

    def _expect_more(self) -> None:
        """Close the session soon if it is connected to nothing any more."""
        if not self.open and self._session.is_open:
            self._clients.expect(self._session)

    def disconnect(self, namespace: str, code: int, reason: str) -> None:
        """Close one namespace for good, or the session if the client is to come back."""
        client = self.open.pop(namespace, None)
        if client is None:
            return
        self._clients.end_soon(client)
        if code in TEMPORARY:  # DISCONNECT would keep the client from coming back
            self._session.close(code, reason)
        else:
            self._send(packets.encode_disconnected(namespace))
            self._expect_more()

    def emit(self, namespace: str, event: str, data: Any) -> None:
        if namespace in self.open:
            self._send(packets.encode_event(namespace, event, data))

    def acknowledge(self, frame: SocketFrame, data: Any) -> None:
        if isinstance(frame, AckFrame) and frame.namespace in self.open:
            self._send(packets.encode_ack(frame.namespace, frame.number, data))

    def _send(self, packet: bytes) -> None:
        self._session.send(b"4" + packet)


def _frame_of(packet: Packet) -> SocketFrame:
    event, data = packet.event
    if packet.ack is None:
        return SocketFrame(packet.namespace, event, data)
    return AckFrame(packet.namespace, event, data, True, packet.ack)


class NamespaceLine:
    """What carries the events of one client."""

    def __init__(self, namespaces: Namespaces, namespace: str) -> None:
        self._namespaces = namespaces
        self._namespace = namespace

    def send(self, output: Output) -> None:
        match output:
            case Emit(event, data, namespace):
                self._namespaces.emit(namespace or self._namespace, event, data)
            case Acknowledge(frame, data):
                self._namespaces.acknowledge(frame, data)
            case Close(reason, code):
                self._namespaces.disconnect(self._namespace, code, reason)
            case _:
                raise TypeError(f"Socket.IO has no {type(output).__name__}")

    def admit(self, identity: Identity) -> None:
        self._namespaces.admit(identity)

    def close(self, code: int, reason: str) -> None:
        self._namespaces.disconnect(self._namespace, code, reason)
