"""Telegram posts updates to the gateway, and they reach the Telegram bridge."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from busd import Client, Incoming, Refuse
from tests.daemons import PATIENCE_SECONDS
from tests.gateway.e2e.place import Place, open_place
from tests.plugins.hook.place import code_of, open_web

pytestmark = pytest.mark.anyio
SECRET = "secret-of-the-bot_1"
HEADER = "X-Telegram-Bot-Api-Secret-Token"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A gateway to which Telegram posts; the bridge is a peer of the tests."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    table = {
        "enabled": False,
        "mode": "webhook",
        "webhook_url": "https://chat.example/bots/telegram/bot7",
        "webhook_secret_file": str(file),
    }
    settings = {f"bridges.telegram.{name}": value for name, value in table.items()}
    with open_place(settings=settings) as opened:
        yield opened


async def post(
    place: Place, body: bytes, secret: str = SECRET, bot: str = "bot7"
) -> httpx.Response:
    async with open_web() as web:
        url = f"http://{place.host}/telegram/{bot}"
        return await web.post(url, content=body, headers={HEADER: secret})


def update(number: int) -> bytes:
    said = {"message_id": number, "text": "hi", "chat": {"id": 5, "type": "private"}}
    return json.dumps({"update_id": number, "message": said}).encode()


@asynccontextmanager
async def bridge(place: Place, refusal: Refuse | None = None) -> AsyncIterator[list[Incoming]]:
    """Be the Telegram bridge within the block."""
    got: list[Incoming] = []
    client = Client("telegram-bridge", address=f"unix:{place.daemon.path}")

    @client.on()
    async def take(message: Incoming) -> None:
        got.append(message)
        if refusal is not None:
            raise refusal

    async with client:
        yield got


async def until(condition: object) -> None:
    assert callable(condition)
    with anyio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await anyio.sleep(0.01)


async def test_an_update_reaches_the_bridge_once(place: Place) -> None:
    async with bridge(place) as got:
        for number in (1, 2, 1):  # Telegram repeats what it believes to be lost
            assert (await post(place, update(number))).status_code == 200
        await until(lambda: len(got) == 2)
    assert [each.type for each in got] == ["external_update"] * 2
    content = [json.loads(bytes(each.raw))["content"] for each in got]
    assert content == [{"update": json.loads(update(number))} for number in (1, 2)]


async def test_an_update_waits_for_a_bridge_that_is_away(place: Place) -> None:
    for number in (1, 2):
        assert (await post(place, update(number))).status_code == 200
    async with bridge(place) as got:
        await until(lambda: len(got) == 2)


async def test_who_does_not_know_the_secret_is_refused(place: Place) -> None:
    for secret in ("", "another", f"{SECRET}1"):
        assert code_of(await post(place, update(1), secret)) == (401, "bad_secret")
    assert code_of(await post(place, update(1), bot="bot8")) == (404, "unknown_bot")
    for body in (b"", b"{", b"[]", b"{}", b'{"update_id": "1"}', b"[" * 100_000):
        assert code_of(await post(place, body)) == (400, "bad_request")
    assert code_of(await post(place, b" " * (512 * 1024 + 1))) == (413, "too_large")
    assert SECRET not in place.gateway_log()
    async with bridge(place) as got:
        assert (await post(place, update(2))).status_code == 200
        await until(lambda: got)
    assert len(got) == 1


async def test_an_update_that_the_bridge_refuses_is_not_sent_for_ever(place: Place) -> None:
    async with bridge(place, Refuse("an unknown kind")) as got:
        assert (await post(place, update(1))).status_code == 200
        await until(lambda: got)
