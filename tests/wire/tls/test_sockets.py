"""TLS on real sockets, on both loops: a bus of ours, with clients of ours and of Python's own."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import TaskGroup
from websockets.sync.client import connect as open_web_socket

from busd.wire.bus_address import BusAddress
from busd.wire.connection import Connection, WireLimits
from busd.wire.connections import Connections
from busd.wire.driver import drive, scheduler
from busd.wire.http_gate import HttpGate
from busd.wire.interfaces import Framer
from busd.wire.lines import LineFramer
from busd.wire.sockets import connect_to, listen_on, tune
from busd.wire.tls import TlsTransport
from busd.wire.tls_settings import (
    Certificates,
    TlsSettings,
    make_client_context,
    read_peer_certificate,
)
from busd.wire.turns import Turns
from busd.wire.websocket import ClientFramer
from tests.wire.tls.authority import Authority, Issued
from tests.wire.tls.ends import MIB, PATIENCE_SECONDS, StdlibPeer, Talk, as_connection

pytestmark = pytest.mark.anyio

SIZES = [1, 200, 16_383, 16_384, 65_536, MIB]
FRAMES = [bytes([ord("[") + number]) * size for number, size in enumerate(SIZES)]


class Bus:
    """A listener that speaks TLS only; each of its sessions says again what it hears."""

    def __init__(self, certificates: Certificates, limits: WireLimits, tasks: TaskGroup) -> None:
        self.certificates = certificates
        self.talks: list[Talk] = []
        self.connections = Connections(limits, HttpGate(), self._make_session, scheduler())
        self._tasks = tasks
        self._sock = listen_on(BusAddress("tcp", host="127.0.0.1", port=0))
        self.port: int = self._sock.getsockname()[1]
        self._came = anyio.Event()

    def _make_session(self, connection: Connection) -> Talk:
        self.talks.append(Talk(connection, echoes=True))
        return self.talks[-1]

    async def serve(self) -> None:
        try:
            while True:
                await anyio.wait_readable(self._sock)
                sock, _ = self._sock.accept()
                tune(sock)
                tls = TlsTransport(self.connections.make("tls"), self.certificates.context)
                await drive(sock, as_connection(tls), self._tasks)
                self._came.set()
                self._came = anyio.Event()
        finally:
            self._sock.close()

    async def talk(self, number: int) -> Talk:
        """Wait for the connection of this number."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while len(self.talks) <= number:
                await self._came.wait()
        return self.talks[number]

    async def join(
        self, context: ssl.SSLContext, framer: Framer | None = None, host: str = "localhost"
    ) -> Talk:
        """Connect a client of ours."""
        sock = await connect_to(BusAddress("tcp", host="127.0.0.1", port=self.port))
        connection = Connection(
            framer or LineFramer(4 * MIB),
            [],
            Turns(scheduler()),
            WireLimits(),
            on_gone=lambda gone: talk.on_gone(gone),
        )
        connection.session = talk = Talk(connection)
        await drive(sock, as_connection(TlsTransport(connection, context, host)), self._tasks)
        return talk

    async def open_socket(self) -> BlockingPeer:
        """Connect a bare socket."""
        sock = socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS)
        return BlockingPeer(sock)


class BlockingPeer:
    """Python's own TLS over a blocking socket, each step in a thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    async def run(self, action: Callable[[], object]) -> None:
        await anyio.to_thread.run_sync(action)

    async def shake_hands(self, context: ssl.SSLContext) -> StdlibPeer:
        peer = StdlibPeer(context)
        peer.take(b"")
        await self.send(peer.give())
        while not peer.is_open:
            await self.read_into(peer)
        return peer

    async def send(self, data: bytes) -> None:
        await self.run(lambda: self.sock.sendall(data))

    async def read(self) -> bytes:
        return await anyio.to_thread.run_sync(self.sock.recv, 65_536)

    async def read_into(self, peer: StdlibPeer) -> bool:
        """Read once; False at the end of the stream."""
        data = await self.read()
        peer.take(data)
        if ciphertext := peer.give():
            await self.send(ciphertext)
        return bool(data)

    async def read_to_end(self, peer: StdlibPeer) -> None:
        while await self.read_into(peer):
            pass


@asynccontextmanager
async def open_bus(settings: TlsSettings, limits: WireLimits | None = None) -> AsyncIterator[Bus]:
    """Run a bus; at the end its connections and those to it are dropped."""
    async with anyio.create_task_group() as tasks:
        bus = Bus(Certificates(settings), limits or WireLimits(max_hello_bytes=4 * MIB), tasks)
        tasks.start_soon(bus.serve)
        yield bus
        for talk in bus.talks:
            talk.connection.abort("the test is over")
        with anyio.fail_after(PATIENCE_SECONDS):
            while bus.connections.open:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


@pytest.fixture
def settings(bus: Issued) -> TlsSettings:
    return TlsSettings(bus.certificate, bus.key)


# What is carried


async def test_frames_of_all_sizes_come_back_by_lines(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        client = await bus.join(client_context)
        client.say(*FRAMES)
        assert await client.hear(len(FRAMES)) == FRAMES


async def test_frames_of_all_sizes_come_back_by_web_socket(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        framer = ClientFramer(f"wss://localhost:{bus.port}/", 4 * MIB)
        client = await bus.join(client_context, framer)
        client.say(*FRAMES)
        assert await client.hear(len(FRAMES)) == FRAMES


async def test_many_clients_at_once_do_not_mix_up_their_frames(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        clients = [await bus.join(client_context) for _ in range(20)]
        expected = [[b"[%d,%d]" % (who, n) for n in range(200)] for who in range(20)]
        for client, frames in zip(clients, expected, strict=True):
            client.say(*frames)
        for client, frames in zip(clients, expected, strict=True):
            assert await client.hear(200) == frames


async def test_a_web_socket_client_of_others_is_served(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    def talk(port: int) -> str | bytes:
        with open_web_socket(f"wss://localhost:{port}/", ssl=client_context) as web_socket:
            web_socket.send("hello")
            return web_socket.recv(PATIENCE_SECONDS)

    async with open_bus(settings) as bus:
        assert await anyio.to_thread.run_sync(talk, bus.port) == "hello"


async def test_a_number_is_as_good_a_name_as_any_if_the_certificate_has_it(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        client = await bus.join(client_context, host="127.0.0.1")
        client.say(b"[hello]")
        assert await client.hear(1) == [b"[hello]"]


# What fails, and for whom


async def test_plain_text_ends_only_its_own_connection(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        client = await bus.join(client_context)
        plain = await bus.open_socket()
        await plain.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert await plain.read() == b""
        assert await (await bus.talk(1)).until_lost() == "plain text where TLS is spoken"
        client.say(b"[still here]")
        assert await client.hear(1) == [b"[still here]"]
        plain.sock.close()


async def test_a_client_of_tls_says_so_when_the_bus_speaks_plain_text(
    client_context: ssl.SSLContext, settings: TlsSettings
) -> None:
    async with open_bus(settings) as bus:
        listener = socket.create_server(("127.0.0.1", 0))
        bus.port = listener.getsockname()[1]
        client = await bus.join(client_context)
        accepted, _ = await anyio.to_thread.run_sync(listener.accept)
        await anyio.to_thread.run_sync(accepted.sendall, b'{"jsonrpc":"2.0"}\n')
        assert await client.until_lost() == "plain text where TLS is spoken"
        accepted.close()
        listener.close()


@pytest.mark.parametrize(
    ("days", "hosts", "ours", "theirs"),
    [
        (
            -1,
            ("localhost",),
            "certificate has expired",
            "the peer says that our certificate has expired",
        ),
        (
            1,
            ("bus.example",),
            "certificate is not valid for 'localhost'",
            "the peer refuses our certificate",
        ),
    ],
)
async def test_a_certificate_that_is_no_good_is_refused_and_the_bus_hears_why(
    days: int,
    hosts: tuple[str, ...],
    ours: str,
    theirs: str,
    authority: Authority,
    client_context: ssl.SSLContext,
) -> None:
    bad = authority.issue(f"bad{days}", hosts=hosts, days=days)
    async with open_bus(TlsSettings(bad.certificate, bad.key)) as bus:
        client = await bus.join(client_context)
        client.say(b"[never sent]")
        assert await client.until_lost() == ours
        talk = await bus.talk(0)
        assert await talk.until_lost() == theirs
        assert talk.frames == []


async def test_the_certificate_of_an_unknown_authority_is_refused(
    stranger: Authority, settings: TlsSettings
) -> None:
    async with open_bus(settings) as bus:
        client = await bus.join(make_client_context(stranger.ca_file))
        assert (await client.until_lost()).startswith("certificate of an unknown authority")
        reason = await (await bus.talk(0)).until_lost()
        assert reason == "the peer does not know the authority behind our certificate"


async def test_a_client_is_known_by_its_certificate(authority: Authority, bus: Issued) -> None:
    alice = authority.issue("alice", hosts=(), uris=("busd:agent/alice",), is_for_client=True)
    asking = TlsSettings(bus.certificate, bus.key, authority.ca_file, "required")
    async with open_bus(asking) as running:
        context = make_client_context(authority.ca_file, alice.certificate, alice.key)
        client = await running.join(context)
        client.say(b"[it is me]")
        await client.hear(1)
        certificate = running.talks[0].certificate
        assert certificate is not None
        assert (certificate.common_name, certificate.names) == ("alice", ("busd:agent/alice",))
        assert client.certificate is not None
        assert client.certificate.common_name == "bus"


async def test_a_client_without_the_certificate_that_is_required_is_refused_and_told(
    authority: Authority, bus: Issued, client_context: ssl.SSLContext
) -> None:
    asking = TlsSettings(bus.certificate, bus.key, authority.ca_file, "required")
    async with open_bus(asking) as running:
        client = await running.join(client_context)
        client.say(b"[let me in]")
        assert await client.until_lost() == "the peer wants a client certificate"
        talk = await running.talk(0)
        assert await talk.until_lost() == "the peer has no client certificate"
        assert talk.frames == []


# The end


async def test_a_close_of_the_bus_is_a_goodbye_and_the_end_of_the_stream(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        plain = await bus.open_socket()
        peer = await plain.shake_hands(client_context)
        talk = await bus.talk(0)
        await plain.send(peer.encrypt(b"[hello]\n"))
        await talk.hear(1)
        bus.connections.close_all()
        await plain.read_to_end(peer)
        assert peer.plain == b"[hello]\n"
        assert peer.has_goodbye
        plain.sock.close()


async def test_a_goodbye_of_a_client_is_answered_by_one(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        plain = await bus.open_socket()
        peer = await plain.shake_hands(client_context)
        await plain.send(peer.goodbye())
        await plain.read_to_end(peer)
        assert peer.has_goodbye
        assert bus.talks[0].has_ended
        plain.sock.close()


@pytest.mark.parametrize("is_cut_off", [False, True])
async def test_answers_still_reach_a_client_that_has_ended(
    is_cut_off: bool, settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        plain = await bus.open_socket()
        peer = await plain.shake_hands(client_context)
        talk = await bus.talk(0)
        talk.keeps_open, talk.echoes = True, False
        await plain.send(peer.encrypt(b"[question]\n"))
        if not is_cut_off:
            await plain.send(peer.goodbye())
        plain.sock.shutdown(socket.SHUT_WR)
        await talk.until(lambda: talk.has_ended)
        talk.say(b"answer " + b"x" * MIB)
        await plain.read_to_end(peer)
        assert peer.plain == b"answer " + b"x" * MIB + b"\n"
        assert peer.has_goodbye
        plain.sock.close()


async def test_a_client_of_ours_closes_with_a_goodbye_that_the_bus_answers(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        client = await bus.join(client_context)
        client.say(b"[hello]")
        await client.hear(1)
        client.connection.close()
        await bus.talks[0].until(lambda: bus.talks[0].has_ended)
        await client.until(lambda: client.is_gone)


async def test_an_abort_is_heard_by_the_other_side(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        client = await bus.join(client_context)
        client.say(b"[hello]")
        await client.hear(1)
        client.connection.abort("enough")
        await bus.talks[0].until_lost()
        assert client.reason == "enough"


# Back-pressure


async def test_a_client_that_does_not_read_clogs_its_connection_until_it_does(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        plain = await bus.open_socket()
        peer = await plain.shake_hands(client_context)
        talk = await bus.talk(0)
        sent = 0
        while not talk.connection.is_clogged:
            talk.say(b"x" * 65_535)
            sent += 65_536
            await anyio.lowlevel.checkpoint()
        assert talk.connection.transport.get_write_buffer_size() > MIB
        while len(peer.plain) < sent:
            await plain.read_into(peer)
        while talk.connection.is_clogged:
            await anyio.lowlevel.checkpoint()
        await plain.send(peer.encrypt(b"[read again]\n"))
        assert await talk.hear(1) == [b"[read again]"]
        plain.sock.close()


async def test_a_client_that_never_reads_is_dropped(
    settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    async with open_bus(settings) as bus:
        plain = await bus.open_socket()
        await plain.shake_hands(client_context)
        talk = await bus.talk(0)
        while not talk.reason:
            talk.say(b"x" * MIB)
            await anyio.lowlevel.checkpoint()
        assert talk.reason == "does not read"
        plain.sock.close()


# Reload


async def test_a_reload_leaves_the_old_connections_and_shows_newcomers_the_new_certificate(
    authority: Authority, settings: TlsSettings, client_context: ssl.SSLContext
) -> None:
    renewed = authority.issue("renewed")
    async with open_bus(settings) as bus:
        old = await bus.join(client_context)
        old.say(b"[before]")
        await old.hear(1)
        bus.certificates.load(TlsSettings(renewed.certificate, renewed.key))
        plain = await bus.open_socket()
        peer = await plain.shake_hands(client_context)
        seen = read_peer_certificate(peer.tls)
        assert seen is not None
        assert seen.common_name == "renewed"
        old.say(b"[after]")
        assert await old.hear(2) == [b"[before]", b"[after]"]
        assert old.certificate is not None
        assert old.certificate.common_name == "bus"
        plain.sock.close()
