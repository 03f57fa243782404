"""The webhook mode: Telegram posts updates to the gateway, which sends them to the bridge.

Telegram → gateway (checks the secret) → `external_update` → `Updates.take` → `Intake`

The gateway keeps an update until the bridge has acked it, so `take` returns once it is processed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from aiogram.methods import GetWebhookInfo, SetWebhook

from busd import Bridge, Incoming, Refuse
from busd.bridge import Secret
from busd_plugins.telegram.api import Api
from busd_plugins.telegram.faults import Fault
from busd_plugins.telegram.intake import Intake
from busd_plugins.telegram.outage import Outage, Timing
from busd_plugins.telegram.polling import ALLOWED
from busd_plugins.telegram.queues import Queues
from busd_plugins.telegram.raw import id_of

_MAX_WAITING = 1_000
_FULL_SECONDS = 5.0


class Updates:
    """The updates that come over the bus."""

    def __init__(self) -> None:
        self._queues: Queues | None = None  # not yet, or the mode is polling
        self._count = 0

    def open(self, queues: Queues) -> None:
        self._queues = queues

    async def take(self, message: Incoming) -> None:
        """Process an update; raise Refuse if that is not possible now."""
        if self._queues is None:
            raise Refuse("the bridge takes no updates now", retry_seconds=_FULL_SECONDS)
        if self._count >= _MAX_WAITING:
            raise Refuse("too many updates wait", retry_seconds=_FULL_SECONDS)
        content = message.read(dict).get("content")
        raw = content.get("update") if isinstance(content, dict) else None
        if id_of(raw) is None:
            raise Refuse("external_update: content.update has no update_id")
        assert isinstance(raw, dict)
        done = anyio.Event()
        self._count += 1
        try:
            self._queues.add(raw, done.set)
            await done.wait()
        finally:
            self._count -= 1


class Webhook:
    """Tells Telegram where the gateway is, and looks after that."""

    def __init__(
        self,
        bridge: Bridge,
        api: Api,
        intake: Intake,
        timing: Timing,
        url: str,
        secret: Secret,
    ) -> None:
        self._bridge = bridge
        self._api = api
        self._intake = intake
        self._timing = timing
        self._outage = Outage(bridge, timing)
        self._url = url
        self._secret = secret

    async def serve(self, updates: Updates) -> None:
        await self._attempt(self._set)
        async with anyio.create_task_group() as tasks:
            updates.open(Queues(self._intake, tasks))
            while True:
                await anyio.sleep(self._timing.check_seconds)
                await self._attempt(self._check)

    async def _attempt(self, request: Callable[[], Awaitable[None]]) -> None:
        """Make a request until Telegram answers it."""
        while True:
            try:
                return await request()
            except Fault as fault:
                await self._outage.wait(fault)

    async def _set(self) -> None:
        await self._api.call(
            SetWebhook(
                url=self._url,
                secret_token=self._secret.value,
                allowed_updates=ALLOWED,
                drop_pending_updates=False,
                max_connections=1,  # so that updates come in order
            )
        )
        self._outage.end()

    async def _check(self) -> None:
        """Report a webhook that somebody else has set, and one that Telegram cannot reach."""
        found = await self._api.call(GetWebhookInfo())
        if found.get("url") != self._url:
            raise Fault("conflict", "the webhook of the bot was changed")
        waiting = found.get("pending_update_count") or 0
        if waiting and (said := found.get("last_error_message")):
            self._bridge.report("waiting", f"Telegram cannot deliver {waiting} updates: {said}")
        else:
            self._outage.end()
