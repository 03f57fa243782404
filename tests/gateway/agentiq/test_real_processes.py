"""AgentIQ with a real bus, gateway and agent: who may do what, and what remains of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import anyio
import pytest
from anyio import to_thread
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.daemons import PATIENCE_SECONDS
from tests.gateway.agentiq.asking import errors, texts, user_message
from tests.gateway.e2e.place import Place, open_place
from tests.gateway.stage.line import Frame

pytestmark = pytest.mark.anyio
PROXY = {"X-Forwarded-For": "192.0.2.1"}  # who comes through one needs a token
WRONG = "busd_a-token-that-nobody-has"
_MIB = 1024 * 1024


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with open_place() as opened:
        yield opened


@asynccontextmanager
async def chat(
    place: Place, conversation: str, headers: dict[str, str] | None = None, **query: str
) -> AsyncIterator[ClientConnection]:
    """Connect as a program of the owner, or through a proxy."""
    url = address_of(place, conversation, **query)
    async with connect(url, additional_headers=headers, max_size=None) as client:
        yield client


def address_of(place: Place, conversation: str, **query: str) -> str:
    told = urlencode({"conversation_id": conversation, **query})
    return f"ws://{place.host}/websocket?{told}"


async def send(client: ClientConnection, frame: Frame) -> None:
    await client.send(json.dumps(frame))


async def read(client: ClientConnection) -> Frame:
    with anyio.fail_after(PATIENCE_SECONDS):
        frame: Frame = json.loads(await client.recv())
        return frame


async def read_prompt(client: ClientConnection) -> Frame:
    """Return the next prompt."""
    while (frame := await read(client))["type"] != "system_interaction_message":
        pass
    return frame


async def read_answer(client: ClientConnection) -> list[Frame]:
    """Return all frames up to the end of an answer."""
    frames = [await read(client)]
    while texts(frames)[-1:] != [None]:
        frames.append(await read(client))
    return frames


async def send_too_much(client: ClientConnection) -> None:
    """Send a frame that is far too large, and read until the connection is closed."""
    await client.send("x" * (8 * _MIB + 1))
    while True:
        await read(client)


def answer_to(prompt: Frame, value: str, **about: object) -> Frame:
    beside = {name: prompt[name] for name in ("thread_id", "parent_id", "conversation_id")}
    return {"type": "user_interaction_message", "id": "a1", **beside, "content": value, **about}


async def files_with(folder: Path, *secrets: str) -> list[tuple[str, str]]:
    """Return the files of a folder that one of the secrets is in."""

    def search() -> list[tuple[str, str]]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert {"gateway.db", "journal.db", "worker.log", "log"} <= {path.name for path in files}
        return [(str(f), s) for f in files for s in secrets if s.encode() in f.read_bytes()]

    return await to_thread.run_sync(search)


async def test_no_secret_is_stored_logged_or_passed_on(place: Place) -> None:
    token = await place.token_of("sam")
    security = {"token": token, "api_key": "an-api-key-of-sam"}
    for secret in (WRONG, token):
        async with chat(place, "secrets", PROXY) as client:
            payload = {"method": "basic", "username": "sam", "password": secret}
            await send(client, {"type": "auth_message", "payload": payload})
            assert (await read(client))["status"] == ("success" if secret == token else "error")
    async with chat(place, "secrets", PROXY) as client:
        await send(client, user_message("hello", security={"token": WRONG}))
        [(code, _)] = errors(await read_answer(client))
        assert code == "user_auth_error"
        await send(client, user_message("ask radio", security=security, api_key=token))
        prompt = await read_prompt(client)
        await send(client, answer_to(prompt, "rye", security=security, token=token))
        assert texts(await read_answer(client)) == ["chosen: rye", None]
        await send(client, user_message('{"token": "mine"', security=security, content=7))
        await read_answer(client)
    async with chat(place, "secrets", PROXY, token=token) as client:
        await send(client, user_message("hello", "m9"))
        assert texts(await read_answer(client)) == ["hello", None]
    found = await files_with(place.daemon.folder, token, WRONG, "an-api-key-of-sam")
    assert found == []


@pytest.mark.parametrize("where", ["query", "header", "user", "payload", "text", "id"])
async def test_a_token_in_the_wrong_place_proves_nothing(place: Place, where: str) -> None:
    token = await place.token_of(f"wrong-{where}")
    headers = PROXY | ({"X-Api-Key": token} if where == "header" else {})
    query = {"api_key": token} if where == "query" else {}
    frame = user_message("hello")
    if where in ("user", "payload"):
        frame[where] = {"name": "sam", "token": token}
    elif where == "text":
        frame["content"] = f"Bearer {token}"
    elif where == "id":
        frame["thread_id"] = token
    async with chat(place, "wrong", headers, **query) as client:
        await send(client, frame)
        refused = await read_answer(client)
        assert errors(refused) == [("user_auth_error", "unauthenticated")]
    assert await files_with(place.daemon.folder, token) == []


async def test_a_page_of_a_foreign_site_is_refused(place: Place) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with chat(place, "origin", {"Origin": "https://foreign.example"}):
            pass
    assert refused.value.response.status_code == 403


async def test_a_frame_over_the_limit_is_refused_and_one_far_over_it_ends_the_connection(
    place: Place,
) -> None:
    async with chat(place, "large") as client:
        await client.send("x" * (4 * _MIB + 1))
        frames = await read_answer(client)
        assert (errors(frames), texts(frames)) == ([("workflow_error", "limit")], [None])
        await send(client, user_message("hello"))
        assert texts(await read_answer(client)) == ["hello", None]
    # Not closed by us: asyncio fails to abort a transport that was closed with data in its buffer.
    client = await connect(address_of(place, "large"), max_size=None)
    with pytest.raises(ConnectionClosed) as closed:
        await send_too_much(client)
    await client.wait_closed()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


async def test_another_users_conversation_of_the_same_name_is_another_one(place: Place) -> None:
    tokens = [await place.token_of(name) for name in ("ann", "dora")]
    ann, dora = [{"Authorization": f"Bearer {token}", **PROXY} for token in tokens]
    async with chat(place, "shared", ann) as client:
        await send(client, user_message("ask radio"))
        prompt = await read_prompt(client)
        async with chat(place, "shared", dora) as other:
            await send(other, answer_to(prompt, "rye"))
            [(code, _)] = errors([await read(other)])
            assert code == "invalid_message"
            await send(other, user_message("mine", "m2"))
            assert texts(await read_answer(other)) == ["mine", None]
        await send(client, answer_to(prompt, "wheat"))
        assert texts(await read_answer(client)) == ["chosen: wheat", None]


async def test_a_second_message_ends_the_work_on_the_first(place: Place) -> None:
    async with chat(place, "cancel") as client:
        await send(client, user_message("hang first"))
        assert texts([await read(client)]) == ["one, two, "]
        assert (await read(client))["type"] == "system_intermediate_message"
        await send(client, user_message("hello", "m2"))
        await place.written("first.cancelled")
        frames = await read_answer(client)
        assert texts(frames) == ["hello", None]
        assert {frame["parent_id"] for frame in frames} == {"m2"}


async def test_a_turn_goes_on_when_the_socket_is_lost_in_the_middle(place: Place) -> None:
    async with chat(place, "lost") as client:
        await send(client, user_message("stages lost"))
        await place.reached("lost.midway")
        client.transport.abort()
    place.let_go("lost.midway")
    place.let_go("lost.ending")
    async with chat(place, "lost") as client:
        prompt = await read_prompt(client)
        assert prompt["content"]["text"] == "lost: which one?"
        await send(client, answer_to(prompt, "spelt"))
        *_, rest, end = await read_answer(client)
        assert str(rest["content"]["text"]).endswith("lost: spelt")
        assert (end["parent_id"], end["content"]) == ("m1", {"text": None})
