"""Engine.IO 4 over HTTP, as it goes over the wire."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest
from websockets.asyncio.client import connect

from busd.gateway.settings import ClientLimits
from tests.gateway.host.clients import PATIENCE_SECONDS
from tests.gateway.host.hosts import RunningHost, bearer, open_host, web

pytestmark = pytest.mark.anyio
BASE = "/socket.io/?EIO=4&transport=polling"


class Poller:
    """A client that polls."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.sid = ""
        self.opening: dict[str, Any] = {}
        self.waiting: list[str] = []

    async def open(self, query: str = "") -> None:
        answer = await self.client.get(BASE + query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/plain; charset=UTF-8"
        self.opening = json.loads(answer.text[1:])
        self.sid = self.opening["sid"]

    async def get(self) -> httpx.Response:
        return await self.client.get(f"{BASE}&sid={self.sid}")

    async def post(self, *packets: str) -> httpx.Response:
        return await self.client.post(f"{BASE}&sid={self.sid}", content="\x1e".join(packets))

    async def next(self) -> str:
        while not self.waiting:
            answer = await self.get()
            assert answer.status_code == 200, answer.text
            self.waiting += answer.text.split("\x1e")
        return self.waiting.pop(0)

    async def connect(self, auth: str = "") -> None:
        """Connect to the first namespace."""
        assert (await self.post(f"40{auth}")).text == "ok"
        assert (await self.next()).startswith('40{"sid":')
        assert (await self.next()).startswith('42["welcome"')


@pytest.fixture
async def poller(host: RunningHost, ann: str) -> AsyncIterator[Poller]:
    async with web(host, headers=bearer(ann)) as client:
        opened = Poller(client)
        await opened.open()
        yield opened


async def fault(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json()["code"]


async def test_a_session_begins_with_its_facts(poller: Poller) -> None:
    assert len(poller.sid) >= 20
    assert poller.opening == {
        "sid": poller.sid,
        "upgrades": ["websocket"],
        "pingInterval": 25_000,
        "pingTimeout": 60_000,
        "maxPayload": 256 * 1024,
    }


async def test_events_and_acks_over_polling(poller: Poller) -> None:
    await poller.connect()
    await poller.post('421["ring",{"text":"你好"}]', '422["silent"]', '42["ring","again"]')
    assert await poller.next() == '42["rang",{"text":"你好"}]'
    assert await poller.next() == '431[{"got":{"text":"你好"}}]'
    assert await poller.next() == '42["rang","again"]'


async def test_a_path_without_a_slash_is_the_same(poller: Poller) -> None:
    answer = await poller.client.post(
        f"/socket.io?EIO=4&transport=polling&sid={poller.sid}", content="40"
    )
    assert answer.text == "ok"
    assert (await poller.next()).startswith("40")


@pytest.mark.parametrize(
    ("method", "query", "code"),
    [
        ("GET", "EIO=4", 0),
        ("GET", "EIO=4&transport=carrier-pigeon", 0),
        ("GET", "EIO=3&transport=polling", 5),
        ("GET", "transport=polling", 5),
        ("POST", "EIO=4&transport=polling", 2),
        ("PUT", "EIO=4&transport=polling", 2),
        ("GET", "EIO=4&transport=polling&sid=unknown", 1),
        ("POST", "EIO=4&transport=polling&sid=unknown", 1),
        ("GET", "EIO=4&transport=websocket", 0),
    ],
)
async def test_malformed_requests_get_the_errors_that_clients_know(
    host: RunningHost, method: str, query: str, code: int
) -> None:
    async with web(host) as client:
        answer = await client.request(method, f"/socket.io/?{query}")
        assert await fault(answer) == (400, code)
    assert host.clients.places.taken == 0


@pytest.mark.parametrize(
    "packet", ["", "x", "9", "4", "47", "4x", '42{"a":1}', '42["connect"]', "bAAAA"]
)
async def test_malformed_packets_are_refused_and_the_session_lives_on(
    poller: Poller, packet: str
) -> None:
    await poller.connect()
    assert (await poller.post(packet, '42["ring",1]')).text == "ok"
    refused = await poller.next()
    assert refused.startswith('42["refused",{"rule":"invalid"'), refused
    assert await poller.next() == '42["rang",1]'


async def test_a_body_that_is_not_utf_8_is_refused(poller: Poller) -> None:
    await poller.connect()
    answer = await poller.client.post(f"{BASE}&sid={poller.sid}", content=b'42["ring"]\xff')
    assert await fault(answer) == (400, 3)
    await poller.post('42["ring",1]')
    assert await poller.next() == '42["rang",1]'


async def test_binary_attachments_are_refused_and_not_kept(poller: Poller) -> None:
    await poller.connect()
    await poller.post('4599999999-["ring",{"_placeholder":true,"num":0}]', "bAAAA", "bAAAA")
    for _ in range(3):
        assert "refused" in await poller.next()
    await poller.post('42["ring",1]')
    assert await poller.next() == '42["rang",1]'


async def test_an_event_over_the_limit_is_refused_and_the_session_lives_on(
    poller: Poller,
) -> None:
    await poller.connect()
    await poller.post(f'42["ring","{"x" * 300_000}"]', '42["ring",1]')
    assert '"rule":"limit"' in await poller.next()
    assert await poller.next() == '42["rang",1]'


async def test_a_body_far_over_the_limit_is_not_read(poller: Poller) -> None:
    await poller.connect()
    answer = await poller.post(f'42["ring","{"x" * 600_000}"]')
    assert await fault(answer) == (413, 3)

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    answer = await poller.client.post(f"{BASE}&sid={poller.sid}", content=endless())
    assert await fault(answer) == (413, 3)
    await poller.post('42["ring",1]')
    assert await poller.next() == '42["rang",1]'


async def test_a_stranger_may_send_little(host: RunningHost) -> None:
    async with web(host) as client:
        poller = Poller(client)
        await poller.open()
        answer = await poller.post("40" + " " * 70_000)
        assert await fault(answer) == (413, 3)


async def test_two_requests_with_packets_at_a_time_are_refused(poller: Poller) -> None:
    await poller.connect()
    statuses: list[int] = []

    async def post() -> None:
        statuses.append((await poller.post(*['42["ring",1]'] * 250)).status_code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(post)
        tasks.start_soon(post)
    assert sorted(statuses) == [200, 400]


# Namespaces


async def test_only_the_namespaces_of_the_dialect_exist(poller: Poller) -> None:
    await poller.post("40/nowhere,", "40/side,")
    assert await poller.next() == '44/nowhere,{"message":"Invalid namespace"}'
    assert (await poller.next()).startswith("40/side,{")
    assert (await poller.next()).startswith('42/side,["welcome"')


async def test_a_namespace_is_connected_to_once(poller: Poller) -> None:
    await poller.connect()
    await poller.post("40")
    assert await poller.next() == '44{"message":"Already connected to this namespace"}'


async def test_an_event_before_connecting_is_ignored(poller: Poller) -> None:
    await poller.post('42["ring",1]', '42/side,1["ring",1]', "41", "43[]")
    await poller.connect()


async def test_the_namespaces_of_a_session_are_clients_of_their_own(
    host: RunningHost, poller: Poller
) -> None:
    await poller.connect()
    await poller.post("40/side,")
    assert (await poller.next()).startswith("40/side,")
    assert (await poller.next()).startswith("42/side,")
    assert host.clients.count() == {"bell": 2}
    assert host.clients.places.taken == 1
    await poller.post('42["elsewhere","psst"]')
    assert await poller.next() == '42/side,["rang","psst"]'
    await poller.post("41/side,")
    await host.until(lambda: host.clients.count() == {"bell": 1})
    await poller.post('42["elsewhere","psst"]', '42["ring",1]')
    assert await poller.next() == '42["rang",1]'


async def test_many_namespaces_that_do_not_exist_leave_nothing_behind(
    host: RunningHost, poller: Poller
) -> None:
    await poller.post(*[f"40/n{number}," for number in range(60)])
    answers = [await poller.next() for _ in range(60)]
    assert all("Invalid namespace" in answer for answer in answers)
    assert len(host.clients) == 0


# The end


async def test_a_client_that_leaves_frees_its_place(host: RunningHost, poller: Poller) -> None:
    await poller.connect()
    assert (host.clients.places.taken, len(host.clients)) == (1, 1)
    await poller.post("1")
    await host.until(lambda: len(host.clients) == 0)
    assert host.clients.places.taken == 0
    assert await fault(await poller.get()) == (400, 1)


async def test_a_dialect_disconnects_for_good(host: RunningHost, poller: Poller) -> None:
    await poller.connect()
    await poller.post('42["close"]')
    assert await poller.next() == "41"
    await host.until(lambda: len(host.clients) == 0)


async def test_after_a_temporary_close_the_client_may_come_back(poller: Poller) -> None:
    await poller.connect()
    await poller.post('42["close",1013]')
    assert await fault(await poller.get()) == (400, 1)


async def test_a_session_that_connects_to_nothing_is_closed(host: RunningHost) -> None:
    del host
    limits = ClientLimits(authenticate_seconds=0.2)
    async with open_host(limits) as quick, web(quick) as client:
        poller = Poller(client)
        await poller.open()
        assert await poller.next() == "1"
        assert quick.clients.places.taken == 0


async def test_a_poll_that_is_given_up_takes_nothing_with_it(poller: Poller) -> None:
    await poller.connect()
    with anyio.move_on_after(0.2):
        await poller.get()
    await poller.post('42["ring",1]')
    assert await poller.next() == '42["rang",1]'


async def test_pings_come_and_the_client_is_lost_if_it_does_not_answer(anyio_backend: Any) -> None:
    async with open_host(ClientLimits(ping_seconds=0.2)) as host:
        token = host.tokens.new("ann")
        async with web(host, headers=bearer(token)) as client:
            poller = Poller(client)
            await poller.open()
            await poller.connect()
            assert await poller.next() == "2"
            assert (await poller.post("3")).text == "ok"
            assert await poller.next() == "2"


async def test_a_client_that_polls_all_the_time_is_slowed_down(poller: Poller) -> None:
    await poller.connect()
    answers = 0
    with anyio.move_on_after(2):
        while True:
            await poller.post('42["silent"]')
            answers += 1
    assert 50 < answers < 250


# WebSocket


async def socket_of(host: RunningHost, sid: str = "", token: str = "") -> Any:
    query = "EIO=4&transport=websocket" + (f"&sid={sid}" if sid else "")
    headers = bearer(token) if token else {}
    return await connect(f"{host.ws}/socket.io/?{query}", additional_headers=headers)


async def test_polling_becomes_a_web_socket(host: RunningHost, poller: Poller) -> None:
    await poller.connect()
    polled: list[str] = []

    async def poll() -> None:
        polled.append(await poller.next())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poll)
        stream = await socket_of(host, poller.sid)
        await stream.send("2probe")
        assert await stream.recv() == "3probe"
    assert polled == ["6"]
    await stream.send("5")
    await stream.send('42["ring",1]')
    assert await stream.recv() == '42["rang",1]'
    assert await fault(await poller.get()) == (400, 3)
    assert host.clients.places.taken == 1
    await stream.close()
    await host.until(lambda: len(host.clients) == 0)
    assert host.clients.places.taken == 0


@pytest.mark.parametrize("frames", [["x"], ["2"], ["2probe", "x"], ["2probe", b"5"], []])
async def test_a_probe_that_fails_leaves_the_session_as_it_was(
    host: RunningHost, poller: Poller, frames: list[Any]
) -> None:
    await poller.connect()
    stream = await socket_of(host, poller.sid)
    for frame in frames:
        await stream.send(frame)
    await stream.close()
    await poller.post('42["ring",1]')
    while (packet := await poller.next()) == "6":
        pass
    assert packet == '42["rang",1]'


async def test_one_web_socket_at_a_time_may_take_over(host: RunningHost, poller: Poller) -> None:
    await poller.connect()
    first, second = await socket_of(host, poller.sid), await socket_of(host, poller.sid)
    await first.send("2probe")
    assert await first.recv() == "3probe"
    await second.send("2probe")
    with anyio.fail_after(PATIENCE_SECONDS):
        await second.wait_closed()
    await first.send("5")
    await first.send('42["ring",1]')
    assert await first.recv() == '42["rang",1]'
    await first.close()


async def test_a_session_may_begin_with_a_web_socket(host: RunningHost, ann: str) -> None:
    stream = await socket_of(host, token=ann)
    assert json.loads((await stream.recv())[1:])["upgrades"] == []
    await stream.send("40")
    assert (await stream.recv()).startswith("40{")
    assert "welcome" in await stream.recv()
    await stream.send("2hello")
    assert await stream.recv() == "3hello"
    await stream.send(b"binary")
    assert '"rule":"invalid"' in await stream.recv()
    await stream.send('421["ring"]')
    assert await stream.recv() == '42["rang"]'
    assert await stream.recv() == '431[{"got":null}]'
    await stream.send("1")
    with anyio.fail_after(PATIENCE_SECONDS):
        await stream.wait_closed()
    await host.until(lambda: host.clients.places.taken == 0)


@pytest.mark.parametrize("query", ["EIO=4&transport=polling", "EIO=3&transport=websocket", ""])
async def test_a_malformed_web_socket_gets_an_error(host: RunningHost, query: str) -> None:
    from tests.gateway.host.clients import refusal

    status, text = await refusal(host, f"/socket.io/?{query}")
    assert status == 400
    assert json.loads(text)["code"] in (0, 5)


# Whose session it is


async def test_another_user_may_not_go_on_with_a_session(host: RunningHost, poller: Poller) -> None:
    await poller.connect()
    bob = host.tokens.new("bob")
    async with web(host, headers=bearer(bob)) as client:
        answer = await client.get(f"{BASE}&sid={poller.sid}")
        assert await fault(answer) == (403, 4)


async def test_the_auth_of_a_client_is_its_token(host: RunningHost, ann: str) -> None:
    async with web(host) as client:
        poller = Poller(client)
        await poller.open()
        await poller.post('40{"token":"wrong"}')
        assert "44" in await poller.next()
        await poller.connect(json.dumps({"token": ann}))
        assert dict(host.clients.places.counts) == {"ann": 1}
        await poller.post(f'42["ring","{"x" * 100_000}"]')
        assert await poller.next() == f'42["rang","{"x" * 100_000}"]'


# Pages of other sites


async def test_an_allowed_page_may_read_the_answers(anyio_backend: Any) -> None:
    site = "https://chat.example"
    async with open_host(allowed_origins=[site]) as host, web(host) as client:
        answer = await client.get(BASE, headers={"Origin": site})
        assert answer.headers["access-control-allow-origin"] == site
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert answer.headers["vary"] == "Origin"
        answer = await client.options(
            BASE, headers={"Origin": site, "Access-Control-Request-Method": "POST"}
        )
        assert answer.status_code == 204
        assert "authorization" in answer.headers["access-control-allow-headers"]
        answer = await client.options(BASE, headers={"Origin": "http://evil.example"})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
