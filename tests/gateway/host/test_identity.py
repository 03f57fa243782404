"""Who a client is: by its token, or by the process at the other end of a loopback connection."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from busd.gateway.identity import Identity
from tests.gateway.host.clients import close_code, echo, read, refusal, socket_io
from tests.gateway.host.hosts import RunningHost, bearer, open_host, web

pytestmark = pytest.mark.anyio

# Asks as another user, which it becomes by itself: Python may lie where only root can start it.
_ASK_AS_NOBODY = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sock = socket.socket()
sock.connect(("127.0.0.1", int(sys.argv[1])))
sock.sendall(b"GET /status HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
while piece := sock.recv(4096):
    os.write(1, piece)
"""


async def user_of(host: RunningHost, path: str = "/ws/echo", headers: Any = None) -> str:
    """Return as whom a dialect knows a client with these headers."""
    from websockets.asyncio.client import connect

    async with connect(f"{host.ws}{path}", additional_headers=headers) as client:
        return str((await read(client))["user"])


@pytest.fixture
async def here(anyio_backend: object) -> AsyncIterator[RunningHost]:
    """A host that asks the kernel who connects, as it does by default."""
    async with open_host(
        identify_loopback=True, allowed_origins=["https://chat.example"]
    ) as opened:
        yield opened


# Tokens


async def test_a_token_may_be_in_the_header_or_in_the_query(host: RunningHost, ann: str) -> None:
    basic = base64.b64encode(f"anybody:{ann}".encode()).decode()
    assert await user_of(host, headers=bearer(ann)) == "ann"
    assert await user_of(host, headers={"authorization": f"bearer  {ann}"}) == "ann"
    assert await user_of(host, headers={"Authorization": f"Basic {basic}"}) == "ann"
    assert await user_of(host, f"/ws/echo?token={ann}") == "ann"
    assert await user_of(host, f"/ws/echo?token={ann}", bearer(ann)) == "ann"


async def test_the_token_of_the_query_is_not_passed_on(host: RunningHost, ann: str) -> None:
    from websockets.asyncio.client import connect

    async with connect(f"{host.ws}/ws/echo?a=1&token={ann}&b=") as client:
        assert (await read(client))["query"] == {"a": "1", "b": ""}


async def test_without_a_token_a_client_is_a_stranger(host: RunningHost) -> None:
    assert await user_of(host) == ""


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/ws/echo?token=wrong", {}, 401),
        ("/ws/echo", bearer("busd_wrong"), 401),
        ("/ws/echo", {"Authorization": "busd_token"}, 400),
        ("/ws/echo", {"Authorization": "Digest x=1"}, 400),
        ("/ws/echo", {"Authorization": "Bearer"}, 400),
        ("/ws/echo", {"Authorization": "Basic %%%"}, 400),
        ("/ws/echo?token=one", bearer("other"), 400),
        ("/ws/echo?token=one&token=one", {}, 400),
        ("/ws/echo?" + "&".join(f"a{n}=1" for n in range(200)), {}, 400),
    ],
)
async def test_a_wrong_token_or_one_in_the_wrong_place_is_refused(
    host: RunningHost, path: str, headers: dict[str, str], status: int
) -> None:
    with capture_logs() as lines:
        found, text = await refusal(host, path, headers)
        assert found == status
        assert text.endswith(".\n")
        async with web(host) as client:
            answer = await client.get(
                path.replace("/ws/echo", "/socket.io/").replace("?", "?EIO=4&transport=polling&")
                if "?" in path
                else "/socket.io/?EIO=4&transport=polling",
                headers=headers,
            )
            assert answer.status_code == status
    assert "wrong" not in str(lines)


async def test_a_token_elsewhere_proves_nothing(host: RunningHost, ann: str) -> None:
    assert await user_of(host, f"/ws/echo?access_token={ann}") == ""
    assert await user_of(host, headers={"Cookie": f"token={ann}"}) == ""
    assert await user_of(host, headers={"X-Token": ann}) == ""


async def test_two_authorization_headers_are_refused(host: RunningHost, ann: str) -> None:
    async with web(host) as client:
        twice = [("Authorization", f"Bearer {ann}"), ("Authorization", f"Bearer {ann}")]
        answer = await client.get("/socket.io/?EIO=4&transport=polling", headers=twice)
        assert (answer.status_code, answer.text) == (400, "More than one Authorization header.\n")


async def test_a_dialect_may_show_a_token(host: RunningHost, ann: str) -> None:
    async with echo(host) as client:
        await client.send('{"do": "authenticate", "token": "wrong"}')
        assert await read(client) == {"refused": "authentication"}
        await client.send(f'{{"do": "authenticate", "token": "{ann}"}}')
        assert await read(client) == {"authenticated": "ann"}
        assert dict(host.clients.places.counts) == {"ann": 1}


async def test_after_many_failures_others_are_not_even_told(host: RunningHost, ann: str) -> None:
    with capture_logs() as lines:
        found = [(await refusal(host, "/ws/echo?token=x"))[0] for _ in range(30)]
    assert found.count(401) >= 20
    assert found[-1] == 429
    assert sum(line["event"] == "client.refused" for line in lines) == found.count(401)
    assert await user_of(host, headers=bearer(ann)) == "ann"


async def test_a_revoked_token_ends_the_connections_that_came_with_it(host: RunningHost) -> None:
    ann, bob = host.tokens.new("ann"), host.tokens.new("bob")
    async with echo(host, ann) as hers, echo(host, bob) as his, socket_io(host, ann) as seen:
        async with echo(host) as late:
            await late.send(f'{{"do": "authenticate", "token": "{ann}"}}')
            await read(late)
            host.tokens.revoke("ann")
            for client in (hers, late):
                assert (await read(client))["refused"] == "authentication"
                assert await close_code(client) == 1008
            refused = await seen.until("/:refused")
            assert refused == {"rule": "authentication", "reason": "the token was revoked"}
            await seen.until("/:disconnect")
        await his.send("still here")
        assert await his.recv() == "still here"
    assert (await refusal(host, headers=bearer(ann)))[0] == 401


async def test_a_new_token_of_the_same_name_is_another_token(host: RunningHost, ann: str) -> None:
    async with echo(host, ann) as client:
        host.tokens.revoke("ann")
        host.tokens.new("ann")
        assert (await read(client))["refused"] == "authentication"
        assert await close_code(client) == 1008


async def test_a_file_of_tokens_that_others_may_write_lets_nobody_in(
    host: RunningHost, ann: str
) -> None:
    (host.kit.folder / "tokens.json").chmod(0o666)
    with capture_logs() as lines:
        status, text = await refusal(host, headers=bearer(ann))
    assert (status, text) == (503, "Tokens cannot be checked now; see the gateway's log.\n")
    assert [line["event"] for line in lines] == ["tokens.refused"]


# Loopback


async def test_a_process_of_our_own_user_is_the_owner(here: RunningHost) -> None:
    assert await user_of(here) == "owner"
    async with socket_io(here) as seen:
        assert (await seen.until("/:welcome"))["user"] == "owner"


async def test_a_token_that_is_shown_decides_alone(here: RunningHost) -> None:
    token = here.tokens.new("ann")
    assert await user_of(here, headers=bearer(token)) == "ann"
    assert (await refusal(here, "/ws/echo?token=wrong"))[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Forwarded": "for=192.0.2.1"},
        {"Via": "1.1 proxy"},
        {"X-Forwarded-For": "192.0.2.1"},
        {"x-forwarded-proto": "https"},
        {"X-Real-IP": "192.0.2.1"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_who_comes_through_a_proxy_needs_a_token(
    here: RunningHost, headers: dict[str, str]
) -> None:
    assert await user_of(here, headers=headers) == ""
    async with web(here) as client:
        assert (await client.get("/status", headers=headers)).status_code == 403


async def test_a_proxy_does_not_change_what_the_kernel_says(here: RunningHost) -> None:
    """The address in the header is not taken for that of the client."""
    headers = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http"}
    assert await user_of(here, headers=headers) == ""


async def test_an_allowed_page_in_our_own_browser_is_the_owner(here: RunningHost) -> None:
    headers = {"Origin": "https://chat.example", "Sec-Fetch-Site": "cross-site"}
    assert await user_of(here, headers=headers) == "owner"


async def test_a_foreign_page_in_our_own_browser_is_refused(here: RunningHost) -> None:
    status, text = await refusal(here, headers={"Origin": "http://evil.example"})
    assert (status, "gateway.allowed_origins" in text) == (403, True)
    async with web(here) as client:
        for path in ("/status", "/socket.io/?EIO=4&transport=polling", "/healthz"):
            answer = await client.get(path, headers={"Origin": "http://evil.example"})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


async def test_a_foreign_name_of_this_host_is_refused(here: RunningHost) -> None:
    """A domain of somebody else's may resolve to this host, and its pages say so in `Host`."""
    async with web(here) as client:
        answer = await client.get("/status", headers={"Host": f"evil.example:{here.port}"})
        assert answer.status_code == 403
        assert "gateway.allowed_hosts" in answer.text


async def test_another_user_of_this_host_is_a_stranger(here: RunningHost) -> None:
    """By a real process of another user, as for the bus."""
    if os.geteuid() != 0:
        pytest.skip("only root can connect as another user")
    dial = [sys.executable, "-I", "-S", "-c", _ASK_AS_NOBODY, str(here.port)]
    result = await anyio.run_process(dial)
    assert b"HTTP/1.1 403" in result.stdout
    assert b"Only the owner" in result.stdout
    async with web(here) as client:
        assert (await client.get("/status")).status_code == 200


# Who may go on with a session of Engine.IO


def test_only_the_same_process_or_user_may_go_on_with_a_session() -> None:
    owner = Identity("owner", is_owner=True, uid=1000)
    ann = Identity("ann", uid=1000, token_sha256="a")
    through_proxy = Identity("ann", token_sha256="a")
    assert owner.may_continue(owner)
    assert ann.may_continue(ann)
    assert through_proxy.may_continue(ann)
    # A browser sends no header with a WebSocket; the secret id of the session has to suffice.
    assert Identity().may_continue(through_proxy)
    assert not Identity(uid=1001).may_continue(owner)
    assert not Identity("bob", token_sha256="b").may_continue(through_proxy)
    assert not Identity("bob", uid=1000, token_sha256="b").may_continue(owner)
