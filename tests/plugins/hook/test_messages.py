"""A program posts a message, and gets the answer of an agent."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import anyio
import httpx
import pytest

from busd import Client
from tests.daemons import PATIENCE_SECONDS
from tests.plugins.hook.place import OTHER_TOKEN, Hooks, bearer, code_of, open_hooks, signed

pytestmark = pytest.mark.anyio


async def test_a_program_waits_for_the_answer(hooks: Hooks) -> None:
    response = await hooks.post({"chat_id": "one", "text": "hello"}, wait=20)
    assert response.status_code == 200, response.text
    outcome = response.json()
    assert (outcome["state"], outcome["chat_id"], outcome["text"]) == ("answered", "one", "hello")
    [reply] = outcome["replies"]
    assert reply["text"] == "hello"
    assert reply["sender"].startswith("agent:")


async def test_a_signed_message_is_answered(hooks: Hooks) -> None:
    body = json.dumps({"text": "signed"}).encode()
    response = await hooks.post(body, headers=signed(body), wait=20)
    assert response.json()["text"] == "signed", response.text


async def test_a_body_that_is_no_json_is_the_text(hooks: Hooks) -> None:
    response = await hooks.post("héllo".encode(), wait=20, chat_id="raw")
    outcome = response.json()
    assert (outcome["chat_id"], outcome["text"]) == ("raw", "héllo"), response.text


async def test_who_does_not_wait_reads_the_answer_later(hooks: Hooks) -> None:
    response = await hooks.post({"text": "later"})
    assert response.status_code == 202, response.text
    accepted = response.json()
    assert (accepted["state"], accepted["replies"]) == ("waiting", [])
    assert response.headers["Location"] == f"/hook/ci/{accepted['id']}"
    read = await hooks.get(accepted["id"], wait=20)
    assert (read.status_code, read.json()["text"]) == (200, "later")
    signed_headers = signed(b"", accepted["id"])
    assert (await hooks.get(accepted["id"], headers=signed_headers)).json() == read.json()
    other = await hooks.get(accepted["id"], hook="shop", headers=bearer(OTHER_TOKEN))
    assert code_of(other) == (404, "unknown_message")


async def test_an_answer_that_takes_longer_than_the_wait_is_read_later(hooks: Hooks) -> None:
    name = f"slow{uuid4().hex[:6]}"
    response = await hooks.post({"chat_id": name, "text": f"stages {name}"}, wait=0.2)
    assert (response.status_code, response.json()["state"]) == (202, "waiting")
    request_id = response.json()["id"]
    hooks.place.let_go(f"{name}.midway")
    asked = (await hooks.get(request_id, wait=20)).json()
    assert asked["state"] == "asking", asked
    prompt_id = asked["replies"][-1]["prompt_id"]
    hooks.place.let_go(f"{name}.ending")
    answer = {"chat_id": name, "text": "rye", "prompt_id": prompt_id}
    outcome = (await hooks.post(answer, wait=20)).json()
    assert (outcome["id"], outcome["state"]) == (request_id, "answered"), outcome
    assert outcome["text"] == f"{name}: rye"


async def test_the_same_key_is_the_same_message(hooks: Hooks) -> None:
    key, body = uuid4().hex, {"chat_id": "twice", "text": "once only"}
    first = await hooks.post(body, key=key, wait=20)
    again = await hooks.post(body, key=key, wait=20)
    assert (first.status_code, first.json()) == (200, again.json())
    other = await hooks.post({**body, "text": "another"}, key=key)
    assert code_of(other) == (422, "key_reused")
    # The keys of another hook are its own.
    theirs = await hooks.post(body, hook="shop", token=OTHER_TOKEN, key=key, wait=20)
    assert theirs.json()["id"] != first.json()["id"]


async def test_a_message_is_posted_twice_at_the_same_time(hooks: Hooks) -> None:
    key, found = uuid4().hex, []

    async def post() -> None:
        found.append((await hooks.post({"text": "both"}, key=key, wait=20)).json())

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(post)
    assert len(found[0]["replies"]) == 1
    assert all(each == found[0] for each in found)


async def test_hooks_have_chats_of_their_own(hooks: Hooks) -> None:
    ours = (await hooks.post({"chat_id": "same", "text": "hi"}, wait=20)).json()
    body = {"chat_id": "same", "text": "hi"}
    theirs = (await hooks.post(body, hook="shop", token=OTHER_TOKEN, wait=20)).json()
    assert ours["replies"][0]["sender"] != theirs["replies"][0]["sender"]


async def test_the_bus_shows_the_bridge(hooks: Hooks) -> None:
    await hooks.post({"text": "hi"}, wait=20)
    address = f"unix:{hooks.place.daemon.path}"
    async with Client("test:hooks", address=address) as bus:
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                [found] = (await bus.call("bridges.list"))["bridges"]
                if found["state"] == "running" and found.get("status"):
                    break
                await anyio.sleep(0.05)
    assert (found["name"], found["peer"], found["kind"]) == ("hook", "hook-bridge", "gateway")
    assert found["status"]["state"] == "connected"
    assert found["status"]["posted"] >= 1


@pytest.fixture
def own_hooks(tmp_path: Path) -> Iterator[Hooks]:
    with open_hooks(tmp_path, wait_seconds=20.0) as opened:
        yield opened


async def test_a_gateway_that_stops_lets_nobody_wait(own_hooks: Hooks) -> None:
    """It answers 202; the message is answered later."""
    found: list[httpx.Response] = []

    async def wait() -> None:
        body = {"chat_id": "stop", "text": "stages stop"}
        found.append(await own_hooks.post(body, wait=20))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await own_hooks.place.reached("stop.midway")
        os.kill((await own_hooks.place.status())["pid"], signal.SIGTERM)
    assert [each.status_code for each in found] == [202]
