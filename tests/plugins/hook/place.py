"""A bus whose gateway serves webhooks, and programs that post to them."""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx

from tests.daemons import PATIENCE_SECONDS
from tests.gateway.e2e.place import Place, open_place

SECRET, TOKEN = "a secret of the tests", "a-token-of-the-tests"
OTHER_TOKEN = "a-token-of-another-hook"
Json = dict[str, Any]


class Hooks:
    """A place with two hooks: `ci` signs or shows a token, `shop` shows another token."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def url(self, hook: str = "ci", request_id: str = "") -> str:
        end = f"/{request_id}" if request_id else ""
        return f"http://{self.place.host}/hook/{hook}{end}"

    async def post(
        self,
        body: Json | bytes,
        *,
        hook: str = "ci",
        token: str = TOKEN,
        key: str = "",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> httpx.Response:
        """Post with a bearer token, unless `headers` say otherwise."""
        shown = headers if headers is not None else bearer(token)
        shown = shown | ({"Idempotency-Key": key} if key else {})
        async with open_web() as web:
            if isinstance(body, bytes):
                return await web.post(self.url(hook), content=body, headers=shown, params=query)
            return await web.post(self.url(hook), json=body, headers=shown, params=query)

    async def get(
        self,
        request_id: str,
        *,
        hook: str = "ci",
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> httpx.Response:
        shown = headers if headers is not None else bearer(TOKEN)
        async with open_web() as web:
            return await web.get(self.url(hook, request_id), headers=shown, params=query)

    async def insist(self, body: Json, key: str) -> httpx.Response:
        """Post as a careful program does: again with the same key, until there is an answer."""
        with anyio.fail_after(2 * PATIENCE_SECONDS):
            while True:
                try:
                    response = await self.post(body, key=key, wait=20)
                    if response.status_code == 200:
                        return response
                    assert response.status_code in (202, 503), response.text
                except httpx.TransportError:
                    pass
                await anyio.sleep(0.1)


def open_web() -> httpx.AsyncClient:
    """Return a client of HTTP; to load certificates for nothing takes long."""
    return httpx.AsyncClient(timeout=PATIENCE_SECONDS, verify=False)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def signed(
    body: bytes, message_id: str = "", *, secret: str = SECRET, age_seconds: float = 0
) -> dict[str, str]:
    """Return the headers that sign a request, computed without the code they prove."""
    message_id = message_id or uuid4().hex
    timestamp = str(int(time.time() - age_seconds))
    content = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), content, sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        "Content-Type": "application/json",
    }


def code_of(response: httpx.Response) -> tuple[int, str]:
    """Return the status of a refusal and its code."""
    return response.status_code, response.json()["error"]["code"]


def write_secrets(folder: Path) -> dict[str, dict[str, str]]:
    """Write the files of the two hooks; return their names as the settings have them."""
    found: dict[str, dict[str, str]] = {}
    for name, kind, value in (
        ("ci", "secrets", SECRET),
        ("ci", "tokens", TOKEN),
        ("shop", "tokens", OTHER_TOKEN),
    ):
        file = folder / f"{name}.{kind}"
        file.write_text(f"{value}\n")
        file.chmod(0o600)
        found.setdefault(kind, {})[name] = str(file)
    return found


@contextmanager
def open_hooks(folder: Path, **more: Any) -> Iterator[Hooks]:
    """Run a bus with a gateway that serves the hooks."""
    settings: dict[str, Any] = {}
    for kind, files in write_secrets(folder).items():
        settings |= {f"bridges.hook.{kind}.{name}": file for name, file in files.items()}
    settings |= {f"bridges.hook.{name}": value for name, value in more.items()}
    with open_place(settings=settings) as place:
        yield Hooks(place)
