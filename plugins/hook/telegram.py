"""Updates of Telegram: in webhook mode Telegram posts them here, and the bus carries them on.

POST → secret checked → `external_update` to the Telegram bridge, durably → 200
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from busd import BusdError, CallRefused, Client
from busd.bridge import read_secret
from busd_plugins.hook.bodies import read_body
from busd_plugins.hook.errors import HookError
from busd_plugins.hook.pages import refusal_of
from busd_plugins.hook.places import Places

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

log = logging.getLogger("busd.bridge")

SECRET = "TELEGRAM_WEBHOOK_SECRET"  # noqa: S105 - a name
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - a name
MAX_BODY_BYTES = 512 * 1024
ACCEPT_SECONDS = 15.0  # for the bus to accept an update; Telegram waits longer
_RETRY_SECONDS = 5
_RECONNECT_SECONDS = 1.0


class _Update(msgspec.Struct):
    """What is read of an update."""

    update_id: int


@asynccontextmanager
async def open_telegram(table: Any) -> AsyncIterator[list[BaseRoute]]:
    """Yield the route of updates; raise ConfigError. Any: the table is another plugin's."""
    secret = read_secret(SECRET, table.webhook_secret_file)
    updates = Updates(table.name, urlsplit(table.webhook_url).path, secret.value)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(updates.run)
        yield [Route("/telegram/{id}", updates.post, methods=["POST"])]
        tasks.cancel_scope.cancel()


class Updates:
    """Passes updates on to the Telegram bridge."""

    def __init__(self, bridge: str, path: str, secret: str) -> None:
        self._bridge = bridge
        self._id = path.rstrip("/").rpartition("/")[2]
        self._secret = secret.encode()
        self._places = Places()
        self._client: Client | None = None

    async def run(self) -> None:
        """Stay connected to the bus until cancelled."""
        is_told = False
        while True:
            try:
                async with Client(f"{self._bridge}-webhook") as client:
                    self._client = client
                    await client.run_forever()
            except BusdError as problem:
                if not is_told:
                    log.warning("updates of Telegram wait for the bus: %s", problem)
                    is_told = True
            finally:
                self._client = None
            await anyio.sleep(_RECONNECT_SECONDS)

    async def post(self, request: Request) -> Response:
        """Take an update; answer 200 only when the bus has it."""
        try:
            self._check(request)
            with self._places.take("telegram"):
                body = await read_body(request, MAX_BODY_BYTES, self._places.proved)
                await self._pass_on(body)
        except HookError as refusal:
            log.warning("an update of Telegram is refused: %s", refusal)
            return refusal_of(refusal)
        except ClientDisconnect:
            pass
        return Response(status_code=200)

    def _check(self, request: Request) -> None:
        if request.path_params["id"] != self._id:
            raise HookError(404, "unknown_bot", "bridges.telegram.webhook_url ends otherwise")
        shown = request.headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(self._secret, shown.encode()):
            raise HookError(401, "bad_secret", f"{SECRET_HEADER} is not that of this bot")

    async def _pass_on(self, body: bytes) -> None:
        try:
            update = msgspec.json.decode(body, type=_Update)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise HookError(400, "bad_request", f"this is no update: {problem}") from None
        content = {"update": msgspec.Raw(body)}
        reason = "the bus is away"
        try:
            with anyio.move_on_after(ACCEPT_SECONDS):
                reason = await self._send(content, f"update:{update.update_id}")
        except BusdError as problem:
            reason = str(problem)
        if reason:
            words = f"the update waits at Telegram: {reason}"
            raise HookError(503, "bus_unavailable", words, retry_seconds=_RETRY_SECONDS)

    async def _send(self, content: dict[str, Any], key: str) -> str:
        """Send an update; return why the bus has not accepted it, "" if it has."""
        if self._client is None:
            return "the bus is away"
        payload = {"type": "external_update", "content": content}
        try:
            receipt = await self._client.send(
                self._bridge, payload, durable=True, idempotency_key=key, caused_by=""
            )
        except CallRefused as refusal:
            data = refusal.data if isinstance(refusal.data, dict) else {}
            if data.get("rule") == "idempotency":
                return ""  # accepted before
            raise
        if receipt.is_kept or any(ack.success for ack in receipt.acks):
            return ""
        for ack in receipt.acks:
            if ack.should_retry is True:
                return ack.message
            log.warning("the Telegram bridge has refused %s: %s", key, ack.message)
        # Refused for good, or known: Telegram must not send it again and again.
        return ""
