"""Socket.IO, with python-socketio's own client: polling, WebSocket, and from one to the other."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import socketio
from socketio.exceptions import ConnectionError as Refused

from tests.gateway.host.clients import Seen, socket_io
from tests.gateway.host.hosts import RunningHost, bearer, open_host

pytestmark = pytest.mark.anyio
TRANSPORTS = [["polling"], ["websocket"], ["polling", "websocket"]]
transports = pytest.mark.parametrize("transports", TRANSPORTS, ids="+".join)


@transports
async def test_events_and_acks(host: RunningHost, ann: str, transports: list[str]) -> None:
    async with socket_io(host, ann, transports, query="?a=1") as seen:
        assert await seen.until("/:welcome") == {"user": "ann", "query": {"a": "1"}}
        assert seen.client.transport() == transports[-1]
        await seen.client.emit("ring", {"text": "你好 🙂"})
        assert await seen.until("/:rang") == {"text": "你好 🙂"}
        assert await seen.client.call("ring", [1, 2]) == {"got": [1, 2]}
        assert await seen.until("/:rang") == [1, 2]
        await seen.client.emit("facts")
        assert await seen.until("/:facts") == {"wants_ack": False, "data": None}
        await seen.client.call("facts", 1)
        assert await seen.until("/:facts") == {"wants_ack": True, "data": 1}


@transports
async def test_several_namespaces(host: RunningHost, ann: str, transports: list[str]) -> None:
    async with socket_io(host, ann, transports, namespaces=["/", "/side"]) as seen:
        await seen.until("/:welcome")
        await seen.until("/side:welcome")
        assert await seen.client.call("ring", 1, namespace="/side") == {"got": 1}
        assert await seen.until("/side:rang") == 1
        await seen.client.emit("elsewhere", "psst")
        assert await seen.until("/side:rang") == "psst"


@transports
async def test_much_in_both_directions_stays_in_order(
    host: RunningHost, ann: str, transports: list[str]
) -> None:
    async with socket_io(host, ann, transports) as seen:
        for number in range(100):
            await seen.client.emit("ring", number)
        assert [await seen.until("/:rang") for _ in range(100)] == list(range(100))


@transports
async def test_a_binary_event_is_refused_and_the_connection_lives_on(
    host: RunningHost, ann: str, transports: list[str]
) -> None:
    async with socket_io(host, ann, transports) as seen:
        await seen.client.emit("ring", {"file": b"\x00" * 1_000})
        refused = await seen.until("/:refused")
        assert refused == {"rule": "invalid", "reason": "binary attachments are not read"}
        assert await seen.client.call("ring", 1) == {"got": 1}


@transports
async def test_an_event_over_the_limit_is_refused_and_the_connection_lives_on(
    host: RunningHost, ann: str, transports: list[str]
) -> None:
    async with socket_io(host, ann, transports) as seen:
        await seen.client.emit("ring", "x" * 300_000)
        assert (await seen.until("/:refused"))["rule"] == "limit"
        assert await seen.client.call("ring", 1) == {"got": 1}


@transports
async def test_a_wrong_token_is_refused(host: RunningHost, transports: list[str]) -> None:
    client = socketio.AsyncClient(reconnection=False)
    with pytest.raises(Refused):
        await client.connect(host.http, headers=bearer("wrong"), transports=transports)
    with pytest.raises(Refused, match="failed to connect"):
        await client.connect(host.http, auth={"token": "wrong"}, transports=transports)
    await client.disconnect()
    await host.until(lambda: host.clients.places.taken == 0)


@transports
async def test_the_token_may_be_in_auth_or_come_later(
    host: RunningHost, ann: str, transports: list[str]
) -> None:
    async with socket_io(host, transports=transports, auth={"token": ann}) as seen:
        assert (await seen.until("/:welcome"))["user"] == "ann"
    async with socket_io(host, transports=transports) as seen:
        assert (await seen.until("/:welcome"))["user"] == ""
        await seen.client.emit("authenticate", "wrong")
        assert await seen.until("/:refused") == "authentication"
        await seen.client.emit("authenticate", ann)
        assert await seen.until("/:authenticated") == "ann"
        assert dict(host.clients.places.counts) == {"ann": 1}


async def test_an_unknown_namespace_is_refused(host: RunningHost, ann: str) -> None:
    client = socketio.AsyncClient(reconnection=False)
    with pytest.raises(Refused, match="/nowhere"):
        await client.connect(host.http, headers=bearer(ann), namespaces=["/nowhere"])
    await client.disconnect()


@transports
async def test_a_client_that_leaves_is_gone_at_once(
    host: RunningHost, ann: str, transports: list[str]
) -> None:
    async with socket_io(host, ann, transports, namespaces=["/", "/side"]) as seen:
        await seen.until("/side:welcome")
        assert len(host.clients) == 2
    await host.until(lambda: len(host.clients) == 0)
    assert host.clients.places.taken == 0
    assert not host.kit.hub.sessions


@transports
async def test_a_dialect_closes_the_namespace_for_good(
    host: RunningHost, ann: str, transports: list[str]
) -> None:
    async with socket_io(host, ann, transports) as seen:
        await seen.client.emit("close")
        await seen.until("/:disconnect")
        assert not seen.client.connected


@transports
async def test_clients_come_back_by_themselves_after_a_restart(
    ann: str, transports: list[str]
) -> None:
    """If the gateway sent DISCONNECT, they would take it that they are not wanted."""
    async with open_host() as host:
        seen = Seen()
        seen.client.reconnection = True
        token = host.tokens.new("ann")
        await seen.client.connect(
            host.http, headers=bearer(token), transports=transports, namespaces=["/"]
        )
        await seen.until("/:welcome")
        host.clients.close_all()
        assert await seen.until("/:disconnect") != "server disconnect"
        await seen.until("/:connect")
        await seen.until("/:welcome")
        assert await seen.client.call("ring", 1) == {"got": 1}
        await seen.client.disconnect()


async def test_a_client_that_does_not_read_by_polling_is_let_go(
    host: RunningHost, ann: str
) -> None:
    """It asked for 200 MiB; what waits for it is bounded."""
    async with socket_io(host, ann, ["websocket"]) as noisy:
        del noisy
    from tests.gateway.host.hosts import web
    from tests.gateway.host.test_engine_io import Poller

    async with web(host, headers=bearer(ann)) as client:
        poller = Poller(client)
        await poller.open()
        await poller.connect()
        await poller.post('42["flood",{"times":2000,"size":100000}]')
        assert (await poller.get()).status_code == 400
        assert host.clients.places.held_bytes == 0


@transports
async def test_other_clients_do_not_notice_one_that_floods(
    host: RunningHost, ann: str, transports: list[str]
) -> None:
    bob = host.tokens.new("bob")
    async with socket_io(host, ann, transports) as loud, socket_io(host, bob, transports) as calm:

        async def flood() -> None:
            for number in range(1_000):
                await loud.client.emit("ring", number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            for number in range(20):
                with anyio.fail_after(5):
                    assert await calm.client.call("ring", number) == {"got": number}
            tasks.cancel_scope.cancel()


def test_the_kinds_of_transport_are_all_tried() -> None:
    assert [each[-1] for each in TRANSPORTS] == ["polling", "websocket", "websocket"]


async def test_hello_has_what_the_client_has_said(host: RunningHost, ann: str) -> None:
    found: list[Any] = []
    make_hello = host.clients.make_hello

    def note(*args: Any, **options: Any) -> Any:
        found.append(make_hello(*args, **options))
        return found[-1]

    host.clients.make_hello = note  # type: ignore[method-assign]
    async with socket_io(host, ann, query="?session_id=s1&client_type=web", namespaces=["/side"]):
        await host.until(lambda: found)
    hello = found[0]
    assert hello.query == {"session_id": "s1", "client_type": "web"}
    assert (hello.namespace, hello.user, hello.path) == ("/side", "ann", "/socket.io/")
    assert hello.socket_id
    assert hello.sign("https://x/y").startswith(f"{host.http}/files/")
    assert hello.sign("javascript:") == ""
    assert hello.now().endswith("Z")
    assert hello.new_id() != hello.new_id()
