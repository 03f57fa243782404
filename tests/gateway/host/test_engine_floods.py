"""What a client of Engine.IO cannot make the gateway do by itself."""

from __future__ import annotations

import socket
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from busd.gateway.engine_session import EngineSession
from busd.gateway.settings import ClientLimits
from tests.gateway.host.hosts import RunningHost, bearer, open_host, web
from tests.gateway.host.test_engine_io import BASE, Poller, fault, poller

__all__ = ["poller"]
pytestmark = pytest.mark.anyio
MIB = 1024 * 1024
# What a client gets of something that it wants 1,000 times: so many at once, and a few more.
FEW = 200


async def stream_of(host: RunningHost, sid: str = "", token: str = "") -> ClientConnection:
    path = "/socket.io/?EIO=4&transport=websocket" + (f"&sid={sid}" if sid else "")
    headers = bearer(token) if token else {}
    return await connect(f"{host.ws}{path}", additional_headers=headers)


async def count_answers(stream: ClientConnection, beginning: str) -> int:
    """Return how many packets with this beginning come within a second."""
    count = 0
    with anyio.move_on_after(1):
        while True:
            count += str(await stream.recv()).startswith(beginning)
    return count


async def test_pings_of_a_client_are_answered_slowly(host: RunningHost) -> None:
    stream = await stream_of(host)
    assert str(await stream.recv()).startswith("0")
    for number in range(1_000):
        await stream.send(f"2{number}")
    assert 0 < await count_answers(stream, "3") < FEW


@pytest.mark.parametrize("kind", ["2", "3", "5", "6"])
async def test_packets_without_content_are_read_slowly_from_a_body(
    poller: Poller, kind: str
) -> None:
    answers = []
    with anyio.move_on_after(1):
        answers.append(await poller.post(*[kind] * 1_000))
    assert not answers


async def test_an_event_that_is_no_json_costs_as_much_as_its_size(
    host: RunningHost, ann: str
) -> None:
    stream = await stream_of(host, token=ann)
    await stream.send("40")
    malformed = '42["ring","' + "x" * 250_000
    async with anyio.create_task_group() as tasks:

        async def flood() -> None:
            for _ in range(40):
                await stream.send(malformed)

        tasks.start_soon(flood)
        assert 0 < await count_answers(stream, '42["refused"') < 20
        tasks.cancel_scope.cancel()


async def test_a_session_has_few_requests_at_a_time(host: RunningHost, ann: str) -> None:
    sessions: list[Any] = []
    watch = host.clients.watch

    def note(line: Any) -> None:
        sessions.append(line)
        watch(line)

    host.clients.watch = note  # type: ignore[method-assign]
    async with web(host, headers=bearer(ann)) as client, anyio.create_task_group() as tasks:
        poller = Poller(client)
        await poller.open()
        [session] = sessions
        assert isinstance(session, EngineSession)
        session.requests.charge(100_000)  # each request has to wait for minutes now
        refused = anyio.Event()

        async def get() -> None:
            assert await fault(await poller.get()) == (400, 3)
            refused.set()

        for _ in range(8):
            tasks.start_soon(get)
        with anyio.move_on_after(0.5):
            await refused.wait()
        assert not refused.is_set()
        assert await fault(await poller.get()) == (400, 3)
        tasks.cancel_scope.cancel()


async def test_nobody_connects_to_a_namespace_after_the_end_of_the_session(
    anyio_backend: object,
) -> None:
    async with open_host(ClientLimits(unknown_clients=1)) as host, web(host) as client:
        token, poller, next_one = host.tokens.new("ann"), Poller(client), Poller(client)
        await poller.open()

        async def post() -> None:
            has_to_wait = f'40{{"token":"{token}","more":"{"x" * 60_000}"}}'
            await poller.post(*["40/nowhere,"] * 48, has_to_wait)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post)
            assert (await poller.next()).startswith("44/nowhere,")
            await next_one.open()  # takes the place of the first
        assert host.clients.count() == {}


async def test_few_web_sockets_at_a_time_try_to_replace_polling(
    host: RunningHost, poller: Poller, ann: str
) -> None:
    await poller.connect()
    tries = [await stream_of(host, poller.sid) for _ in range(4)]
    with pytest.raises(InvalidStatus) as refused:
        await stream_of(host, poller.sid)
    assert refused.value.response.status_code == 400
    for stream in tries:
        await stream.close()
    stream = await stream_of(host, poller.sid)
    await stream.send("2probe")
    assert await stream.recv() == "3probe"
    await stream.close()
    await poller.post('42["ring",1]')
    while (packet := await poller.next()) == "6":
        pass
    assert packet == '42["rang",1]'


async def test_what_a_poll_was_answered_is_held_for_its_user_until_it_is_read(
    anyio_backend: object,
) -> None:
    async with open_host(ClientLimits(unsent_bytes=64 * MIB)) as host:
        token = host.tokens.new("ann")
        async with web(host, headers=bearer(token)) as client:
            poller = Poller(client)
            await poller.open()
            await poller.connect()
            places = host.clients.places
            await poller.post('42["flood",{"times":8,"size":4000000}]')
            assert places.held_bytes > 30 * MIB
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.connect(("127.0.0.1", host.port))
                slow.sendall(
                    f"GET {BASE}&sid={poller.sid} HTTP/1.1\r\n"
                    f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
                )
                await anyio.wait_readable(slow)
                assert places.held_bytes > 10 * MIB
            await host.until(lambda: places.held_bytes == 0)
            await poller.post('42["ring",1]')
            assert await poller.next() == '42["rang",1]'
