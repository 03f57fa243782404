"""The answer is posted to the URL of the caller, whatever goes wrong there."""

from __future__ import annotations

import base64
import hmac
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from uuid import uuid4

import anyio
import pytest

from tests.daemons import PATIENCE_SECONDS
from tests.plugins.hook.listener import Fault, Listener, open_listener
from tests.plugins.hook.place import SECRET, Hooks, code_of, open_hooks

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    """Hooks whose callbacks may go to this host: the callers of the tests are here."""
    with open_hooks(tmp_path_factory.mktemp("hooks"), allow_private_callbacks=True) as opened:
        yield opened


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with open_listener() as opened:
        yield opened


async def post(hooks: Hooks, listener: Listener, text: str = "hi", chat_id: str = "") -> str:
    body = {"chat_id": chat_id or uuid4().hex, "text": text, "callback_url": listener.url()}
    response = await hooks.post(body)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


async def callback_of(hooks: Hooks, request_id: str) -> str:
    """Return what is said of the callback of the first reply, once something is."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            replies = (await hooks.get(request_id, wait=20)).json()["replies"]
            if replies and "callback" in replies[0]:
                return str(replies[0]["callback"])
            await anyio.sleep(0.05)


async def test_the_answer_is_posted_and_signed(hooks: Hooks, listener: Listener) -> None:
    request_id = await post(hooks, listener, "hello", "one")
    await listener.until(lambda: listener.accepted)
    [got] = listener.accepted
    said = got.json
    assert (said["id"], said["chat_id"], said["is_repeat"]) == (request_id, "one", False)
    assert got.json["reply"]["text"] == "hello"
    assert got.headers["webhook-id"] == got.json["reply"]["id"]
    content = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode()
    digest = hmac.new(SECRET.encode(), content + got.body, sha256).digest()
    assert got.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert await callback_of(hooks, request_id) == "delivered"


@pytest.mark.parametrize("fault", [500, 503, 429, 408, "drop"])
async def test_what_is_refused_for_now_is_posted_again(
    hooks: Hooks, listener: Listener, fault: Fault
) -> None:
    listener.faults = [fault]
    await post(hooks, listener)
    await listener.until(lambda: listener.accepted)
    expected = fault == "drop"  # it may have been read: nobody has said that it was not
    assert [each.json["is_repeat"] for each in listener.accepted] == [expected]
    assert len({each.headers["webhook-id"] for each in listener.got}) == 1


@pytest.mark.parametrize("fault", ["cut", "noise"])
async def test_half_a_response_makes_a_repetition_that_is_flagged(
    hooks: Hooks, listener: Listener, fault: Fault
) -> None:
    listener.faults = [fault]
    await post(hooks, listener)
    await listener.until(lambda: listener.accepted)
    first, second = listener.got
    assert (first.json["is_repeat"], second.json["is_repeat"]) == (False, True)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


@pytest.mark.parametrize("status", [400, 401, 404, 410, 301, 302, 307])
async def test_what_is_refused_for_good_is_given_up_and_can_be_read(
    hooks: Hooks, listener: Listener, status: int
) -> None:
    listener.faults = [status]
    listener.headers = f"Location: {listener.url('/elsewhere')}\r\n"
    request_id = await post(hooks, listener, "keep me")
    assert await callback_of(hooks, request_id) == f"the callback URL answered {status}"
    assert len(listener.got) == 1  # a redirection is not followed, either
    assert (await hooks.get(request_id)).json()["text"] == "keep me"


async def test_answers_of_a_chat_come_in_order_also_after_failures(
    hooks: Hooks, listener: Listener
) -> None:
    listener.faults = [503, 200, "cut"]
    for number in range(5):
        await post(hooks, listener, str(number), "ordered")
    await listener.until(lambda: len(listener.accepted) == 5)
    assert listener.texts() == [str(number) for number in range(5)]


async def test_a_wish_to_wait_is_obeyed(hooks: Hooks, listener: Listener) -> None:
    listener.faults, listener.headers = [429], "Retry-After: 2\r\n"
    await post(hooks, listener)
    await listener.until(lambda: len(listener.got) == 1)
    begun = anyio.current_time()
    await listener.until(lambda: listener.accepted)
    assert anyio.current_time() - begun >= 1.9


async def test_a_listener_that_hangs_does_not_delay_other_chats(
    hooks: Hooks, listener: Listener
) -> None:
    listener.faults = ["hang"]
    await post(hooks, listener, "stuck")
    await listener.until(lambda: listener.got)
    await post(hooks, listener, "free")
    response = await hooks.post({"text": "waits"}, wait=20)
    assert response.json()["text"] == "waits"
    await listener.until(lambda: listener.texts() == ["free"])
    listener.release.set()  # it closes without an answer: the outcome is not known
    await listener.until(lambda: len(listener.accepted) == 2)
    assert listener.accepted[1].json["is_repeat"]


async def test_a_url_is_checked_when_the_message_is_posted(hooks: Hooks) -> None:
    for url in (
        "nonsense",
        "ftp://127.0.0.1/",
        "http://",
        "http://user:word@127.0.0.1/",
        "http://127.0.0.1:port/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1/a b",
        "http://[::1/",
        "http://127.0.0.1/\r\nX: y",
    ):
        response = await hooks.post({"text": "hi", "callback_url": url})
        assert code_of(response) == (400, "bad_callback_url"), url
    long = await hooks.post({"text": "hi", "callback_url": "http://x/" + "x" * 2_000})
    assert code_of(long) == (400, "bad_request")
    both = await hooks.post({"text": "hi", "callback_url": "http://127.0.0.1/"}, wait=1)
    assert code_of(both) == (400, "bad_request")
