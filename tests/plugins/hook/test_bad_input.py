"""What a hook refuses, and how it says so."""

from __future__ import annotations

import base64
import json
from contextlib import AsyncExitStack
from uuid import uuid4

import anyio
import httpx
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.daemons import PATIENCE_SECONDS
from tests.plugins.hook.place import (
    OTHER_TOKEN,
    TOKEN,
    Hooks,
    bearer,
    code_of,
    open_web,
    signed,
)

pytestmark = pytest.mark.anyio
LONG_SECONDS = 60.0
BODY = b'{"text": "hi"}'


async def test_an_unknown_hook_is_not_found(hooks: Hooks) -> None:
    assert code_of(await hooks.post({"text": "hi"}, hook="nobody")) == (404, "unknown_hook")


async def test_who_proves_nothing_is_refused(hooks: Hooks) -> None:
    response = await hooks.post(BODY, headers={})
    assert code_of(response) == (401, "not_authenticated")
    assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("token", ["x", OTHER_TOKEN, f"{TOKEN}x", "é"])
async def test_a_wrong_token_is_refused(hooks: Hooks, token: str) -> None:
    head = [(b"Authorization", f"Bearer {token}".encode())]
    async with open_web() as web:
        response = await web.post(hooks.url(), content=BODY, headers=head)
    assert code_of(response) == (401, "bad_token")
    assert TOKEN not in response.text


async def test_a_wrong_signature_is_refused(hooks: Hooks) -> None:
    right = signed(BODY)
    wrong = base64.b64encode(b"x" * 32).decode()
    for headers in (
        signed(BODY, secret="another secret"),
        signed(b"another body"),
        {**right, "webhook-id": "another id"},
        {**right, "webhook-timestamp": str(int(right["webhook-timestamp"]) + 1)},
        {**right, "webhook-signature": f"v1,{wrong}"},
        {**right, "webhook-signature": right["webhook-signature"].removeprefix("v1,")},
        {**right, "webhook-signature": ""},
        {**right, "webhook-signature": " ".join([f"v1,{wrong}"] * 20)},
        {**right, "webhook-id": ""},
        {**right, "webhook-id": "x" * 201},
    ):
        assert code_of(await hooks.post(BODY, headers=headers)) == (401, "bad_signature"), headers


@pytest.mark.parametrize("shown", ["", "Bearer"])
async def test_an_empty_authorization_proves_nothing(hooks: Hooks, shown: str) -> None:
    wrong = signed(BODY, secret="another secret") | {"Authorization": shown}
    response = await hooks.post(BODY, headers=wrong)
    assert code_of(response) in ((401, "bad_signature"), (401, "bad_token"))
    known = (await hooks.post({"text": "mine"})).json()["id"]
    wrong = signed(b"", known, secret="another secret") | {"Authorization": shown}
    assert (await hooks.get(known, headers=wrong)).status_code == 401


async def test_one_of_several_signatures_is_enough(hooks: Hooks) -> None:
    right = signed(BODY)
    both = {**right, "webhook-signature": f"v1,eHg= {right['webhook-signature']}"}
    assert (await hooks.post(BODY, headers=both)).status_code == 202


async def test_a_hook_without_a_secret_takes_no_signature(hooks: Hooks) -> None:
    for secret in ("", OTHER_TOKEN):
        response = await hooks.post(BODY, hook="shop", headers=signed(BODY, secret=secret))
        assert code_of(response) == (401, "bad_signature")


@pytest.mark.parametrize("age_seconds", [301, 86_400, -400])
async def test_an_old_timestamp_is_refused(hooks: Hooks, age_seconds: int) -> None:
    response = await hooks.post(BODY, headers=signed(BODY, age_seconds=age_seconds))
    assert code_of(response) == (401, "old_timestamp")


@pytest.mark.parametrize("timestamp", ["", "now", "1e9", "-5", "9" * 400, "²"])
async def test_a_timestamp_that_is_none_is_refused(hooks: Hooks, timestamp: str) -> None:
    headers = signed(BODY) | {"webhook-timestamp": timestamp}
    async with open_web() as web:
        head = [(name.encode(), value.encode()) for name, value in headers.items()]
        response = await web.post(hooks.url(), content=BODY, headers=head)
    assert code_of(response) == (401, "bad_timestamp")


async def test_a_request_that_is_replayed_does_nothing_again(hooks: Hooks) -> None:
    body = json.dumps({"chat_id": "replay", "text": "pay 5 euros"}).encode()
    headers = signed(body)
    first = (await hooks.post(body, headers=headers, wait=20)).json()
    replayed = (await hooks.post(body, headers=headers, wait=20)).json()
    assert replayed == first
    # Nor with another key: that of a signed request is signed.
    other = await hooks.post(body, headers=headers, key="another")
    assert code_of(other) == (400, "bad_request")


async def test_a_signature_reads_only_the_answer_whose_id_is_signed(hooks: Hooks) -> None:
    request_id = (await hooks.post({"text": "hi"})).json()["id"]
    response = await hooks.get(request_id, headers=signed(b""))
    assert code_of(response) == (401, "bad_signature")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"chat_id": "one"}',
        b'{"text": 5}',
        b'{"text": ""}',
        b'{"text": "hi", "chat_id": ""}',
        b'{"text": "hi", "chat_id": "a chat"}',
        b'{"text": "hi", "chat_id": "*"}',
        b'{"text": "hi", "chat_id": "' + b"x" * 181 + b'"}',
        b'{"text": "hi", "chatid": "misspelt"}',
        b'{"text": "hi", "metadata": []}',
        b'{"text": "hi", "metadata": ' + b"[" * 5_000 + b"}",
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
    ],
)
async def test_a_body_that_is_no_message_is_refused(hooks: Hooks, body: bytes) -> None:
    headers = bearer(TOKEN) | {"Content-Type": "application/json"}
    response = await hooks.post(body, headers=headers)
    assert code_of(response) == (400, "bad_request")


async def test_a_text_that_is_not_utf_8_is_refused(hooks: Hooks) -> None:
    assert code_of(await hooks.post(b"\xff")) == (400, "bad_request")


@pytest.mark.parametrize("wait", ["soon", "-1", "nan", "inf", "1e300", "9" * 50])
async def test_a_wait_that_is_no_time_is_refused(hooks: Hooks, wait: str) -> None:
    assert code_of(await hooks.post({"text": "hi"}, wait=wait)) == (400, "bad_request")


async def test_a_message_that_is_too_large_is_refused(hooks: Hooks) -> None:
    response = await hooks.post(b"x" * 65_537)
    assert code_of(response) == (413, "too_large")

    async def chunks() -> object:
        for _ in range(20):
            yield b"x" * 4_096

    async with open_web() as web:
        response = await web.post(hooks.url(), content=chunks(), headers=bearer(TOKEN))  # type: ignore[arg-type]  # it is one
    assert code_of(response) == (413, "too_large")


def head_of_length(hooks: Hooks, length: int) -> bytes:
    lines = [f"Host: {hooks.place.host}", f"Authorization: Bearer {TOKEN}"]
    lines += [f"Content-Length: {length}", "", ""]
    return "\r\n".join(["POST /hook/ci HTTP/1.1", *lines]).encode()


async def test_ten_megabytes_are_refused_before_they_are_read(hooks: Hooks) -> None:
    async with await anyio.connect_tcp("127.0.0.1", hooks.place.port) as stream:
        await stream.send(head_of_length(hooks, 10 * 1024 * 1024))
        with anyio.fail_after(PATIENCE_SECONDS):
            assert (await stream.receive()).startswith(b"HTTP/1.1 413 ")
            with pytest.raises(anyio.BrokenResourceError):  # nobody reads all of it
                await stream.send(b" " * 10 * 1024 * 1024)


async def test_who_sends_too_much_still_gets_the_answer(hooks: Hooks) -> None:
    """A connection that is closed while its client sends loses what the client has not read."""
    length = 512 * 1024
    async with await anyio.connect_tcp("127.0.0.1", hooks.place.port) as stream:
        answers = BufferedByteReceiveStream(stream)
        with anyio.fail_after(PATIENCE_SECONDS):
            for _ in range(2):
                await stream.send(head_of_length(hooks, length))
                head = await answers.receive_until(b"\r\n\r\n", 4_096)
                assert head.startswith(b"HTTP/1.1 413 ")
                await answers.receive_until(b"}}", 4_096)
                await stream.send(b" " * length)


async def test_a_key_that_is_too_long_is_refused(hooks: Hooks) -> None:
    assert code_of(await hooks.post({"text": "hi"}, key="k" * 256)) == (400, "bad_request")


async def test_an_unknown_message_is_not_found(hooks: Hooks) -> None:
    for request_id in ("x", uuid4().hex, "x" * 1_000, "%00"):
        assert code_of(await hooks.get(request_id)) == (404, "unknown_message")


async def test_another_method_is_refused(hooks: Hooks) -> None:
    async with open_web() as web:
        assert (await web.put(hooks.url())).status_code == 405


async def test_too_many_requests_of_a_hook_are_refused_and_others_are_not(hooks: Hooks) -> None:
    name = f"busy{uuid4().hex[:6]}"
    found: list[tuple[int, str]] = []

    async def wait(web: httpx.AsyncClient) -> None:
        response = await post_stages(web, hooks, name)
        if response.status_code == 429:
            assert response.headers["Retry-After"] == "1"
            found.append(code_of(response))
            if len(found) == 12:
                hooks.place.let_go(f"{name}.midway")

    async with open_many() as web:
        with anyio.fail_after(LONG_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(128 + 12):
                    tasks.start_soon(wait, web)
    assert found == [(429, "too_many_requests")] * 12
    other = await hooks.post({"text": "hi"}, hook="shop", token=OTHER_TOKEN, wait=20)
    assert other.status_code == 200


async def test_who_cannot_sign_keeps_nobody_out_by_sending_slowly(hooks: Hooks) -> None:
    shown = signed(BODY, secret="another secret") | {"Host": hooks.place.host}
    shown |= {"Content-Length": "1000"}
    head = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
    begun = f"POST /hook/ci HTTP/1.1\r\n{head}\r\n{{".encode()
    async with AsyncExitStack() as opened:
        for _ in range(150):
            stream = await opened.enter_async_context(
                await anyio.connect_tcp("127.0.0.1", hooks.place.port)
            )
            await stream.send(begun)
        assert (await hooks.post(BODY)).status_code == 202
        assert (await hooks.post(BODY, headers=signed(BODY))).status_code == 202


async def test_who_goes_away_leaves_nothing_behind(hooks: Hooks) -> None:
    """Those who waited and left do not count: the next one finds a place."""
    name = f"gone{uuid4().hex[:6]}"
    is_full = anyio.Event()

    async def wait(web: httpx.AsyncClient) -> None:
        if (await post_stages(web, hooks, name)).status_code == 429:
            is_full.set()

    async with open_many() as web, anyio.create_task_group() as tasks:
        for _ in range(128 + 1):
            tasks.start_soon(wait, web)
        with anyio.fail_after(PATIENCE_SECONDS):
            await is_full.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(LONG_SECONDS / 2):  # those who left wanted to wait longer
        while (await hooks.post({"text": "hi"})).status_code != 202:
            await anyio.sleep(0.05)
    hooks.place.let_go(f"{name}.midway")
    hooks.place.let_go(f"{name}.ending")


def open_many() -> httpx.AsyncClient:
    """Return a client for many requests at the same time."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(timeout=None, limits=limits, headers=bearer(TOKEN), verify=False)


async def post_stages(web: httpx.AsyncClient, hooks: Hooks, name: str) -> httpx.Response:
    """Post a message that is not answered until the test lets its agent go on; wait for that."""
    body = {"chat_id": name, "text": f"stages {name}"}
    head = {"Idempotency-Key": name}
    params = {"wait": LONG_SECONDS}
    response = await web.post(hooks.url(), json=body, headers=head, params=params)
    while response.status_code == 503:  # a busy machine reads some bodies too slowly
        response = await web.post(hooks.url(), json=body, headers=head, params=params)
    return response


async def test_no_secret_is_in_a_log_or_an_answer(hooks: Hooks) -> None:
    document = await hooks.get("openapi.json")
    log = hooks.place.gateway_log() + hooks.place.daemon.log()
    assert TOKEN not in log + document.text
    assert OTHER_TOKEN not in log + document.text


async def test_a_callback_url_of_this_host_is_refused_unless_that_is_allowed(
    hooks: Hooks,
) -> None:
    for place in (
        *("https://127.0.0.1/", "https://localhost:8443/", "https://[::1]/"),
        *("https://[::ffff:127.0.0.1]/", "https://2130706433/", "https://0x7f.1/"),
        *("https://10.0.0.1/", "https://169.254.169.254/latest/meta-data"),
        f"http://{hooks.place.host}/hook/ci",
    ):
        response = await hooks.post({"text": "hi", "callback_url": place})
        assert code_of(response) == (400, "bad_callback_url"), place
