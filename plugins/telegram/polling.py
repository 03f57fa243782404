"""Polling: updates are fetched, processed in order per chat, and confirmed only then.

Telegram keeps an update until a poll has a greater offset. The offset is the first update that is
not done: a window of at most 100 updates is under way, in as many chats as there are.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial

import anyio
from aiogram.methods import DeleteWebhook, GetUpdates, GetWebhookInfo

from busd import Bridge
from busd_plugins.telegram.api import Api
from busd_plugins.telegram.faults import Fault
from busd_plugins.telegram.intake import Intake
from busd_plugins.telegram.outage import Outage, Timing
from busd_plugins.telegram.queues import Queues
from busd_plugins.telegram.raw import Raw, id_of

log = logging.getLogger("busd.telegram")

ALLOWED = ["message", "edited_message", "callback_query"]
_WINDOW = 100  # what Telegram sends at once
_REMEMBERED = 1_000  # updates that are done, to recognize those delivered twice
_CLOSE_SECONDS = 2.0


class Window:
    """The updates that are under way, in the order Telegram sent them."""

    def __init__(self) -> None:
        self.offset = 0  # the next poll confirms what is below; 0: nothing yet
        self._is_done: dict[int, bool] = {}
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._is_done)

    def add(self, update_id: int) -> bool:
        """Add an update; return False if it is known."""
        if update_id in self._is_done:
            return False
        if update_id in self._recent:
            self._is_done[update_id] = True
            self._advance()
            return False
        self._is_done[update_id] = False
        return True

    def finish(self, update_id: int) -> None:
        self._is_done[update_id] = True
        self._recent.append(update_id)
        self._advance()

    def _advance(self) -> None:
        while self._is_done and self._is_done[next(iter(self._is_done))]:
            update_id = next(iter(self._is_done))
            del self._is_done[update_id]
            self.offset = update_id + 1
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_until_empty(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._is_done:
                await self._changed.wait()


class Polling:
    """Fetches updates until it is cancelled."""

    def __init__(self, bridge: Bridge, api: Api, intake: Intake, timing: Timing) -> None:
        self._api = api
        self._intake = intake
        self._timing = timing
        self._outage = Outage(bridge, timing)
        self._window = Window()

    async def serve(self) -> None:
        await self._remove_webhook()
        try:
            async with anyio.create_task_group() as tasks:
                queues = Queues(self._intake, tasks)
                while True:
                    await self._poll(queues)
        finally:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._confirm()

    async def _remove_webhook(self) -> None:
        """Remove a webhook, which the settings do not ask for; what waits there is kept."""
        while True:
            try:
                if (await self._api.call(GetWebhookInfo())).get("url"):
                    log.warning("the webhook of the bot is removed: its settings say polling")
                    await self._api.call(DeleteWebhook(drop_pending_updates=False))
                return
            except Fault as fault:
                await self._outage.wait(fault)

    async def _poll(self, queues: Queues) -> None:
        """Fetch what there is, and wait for it to be processed."""
        # The first poll does not wait for updates: it shows that Telegram serves the bridge.
        is_waiting = self._outage.is_over and not self._window
        try:
            found = await self._fetch(self._timing.poll_seconds if is_waiting else 0)
        except Fault as fault:
            await self._outage.wait(fault)
            return
        self._outage.end()
        offset = self._window.offset
        for raw in found:
            update_id = id_of(raw)
            if update_id is not None and self._window.add(update_id):
                queues.add(raw, partial(self._window.finish, update_id))
        # The bus may be away for an hour: what waits for it is not fetched again all the time.
        pause = self._timing.glance_seconds * (10 if len(self._window) >= _WINDOW else 1)
        await self._window.wait_until_empty(pause)
        if found and self._window.offset == offset and not self._window:
            await anyio.sleep(pause)  # what cannot be confirmed comes again at once

    async def _fetch(self, seconds: int) -> list[Raw]:
        method = GetUpdates(
            offset=self._window.offset or None,
            limit=_WINDOW,
            timeout=seconds,
            allowed_updates=ALLOWED,
        )
        found = await self._api.call(method, seconds + 10)
        if not isinstance(found, list):
            raise Fault("unknown", "the updates are no list")
        return found

    async def _confirm(self) -> None:
        """Confirm what is done, so that the next process does not get it again."""
        if not self._window.offset:
            return
        method = GetUpdates(offset=self._window.offset, limit=1, timeout=0)
        try:
            await self._api.call(method, _CLOSE_SECONDS)
        except Fault as fault:
            log.info("the last updates will be delivered again: %s", fault)
