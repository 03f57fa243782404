"""The Telegram bridge put together.

update → `Polling` or `Webhook` → `Intake` → bus
bus → `Poster` and `Shower` → Telegram
"""

from __future__ import annotations

import logging
from contextlib import closing

import anyio
from aiogram.methods import GetMe

from busd import Bridge
from busd.bridge import Pace, Part, read_secret
from busd_plugins.telegram.access import Access, Me
from busd_plugins.telegram.api import Api, open_api
from busd_plugins.telegram.attachments import Attachments
from busd_plugins.telegram.chats import Chats, GroupPace
from busd_plugins.telegram.faults import Fault
from busd_plugins.telegram.intake import Intake
from busd_plugins.telegram.outage import Outage, Timing
from busd_plugins.telegram.polling import Polling
from busd_plugins.telegram.posting import Poster
from busd_plugins.telegram.prompts import Prompts
from busd_plugins.telegram.settings import TelegramTable
from busd_plugins.telegram.showing import Shower
from busd_plugins.telegram.store import Store
from busd_plugins.telegram.webhook import Updates, Webhook

log = logging.getLogger("busd.telegram")

# What Telegram allows a bot: a message per second in a chat, 30 in all.
PACE = Pace(per_chat_seconds=1.0, total_per_second=28.0, show_seconds=1.5, patience_seconds=90.0)
STORE_FILE = "telegram.db"
_CLOSE_SECONDS = 5.0


class Telegram:
    """The bridge between the chats of one bot and the bus."""

    def __init__(
        self,
        bridge: Bridge,
        table: TelegramTable,
        *,
        pace: Pace = PACE,
        timing: Timing = Timing(),  # noqa: B008 - immutable
    ) -> None:
        self._bridge = bridge
        self._table = table
        self._timing = timing
        bridge.pace = pace

    async def serve(self) -> None:
        """Serve until cancelled; raise ConfigError, or BusdError if the bus refuses us."""
        token = read_secret(self._table.secret_name, self._table.token_file)
        with self._bridge.lease(token):
            async with open_api(token, self._table.api_base) as api:
                await self._serve(api)

    async def _serve(self, api: Api) -> None:
        bridge = self._bridge
        bridge.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(Store(bridge.state / STORE_FILE)) as store:
            chats, pace = Chats(store), GroupPace()
            poster = Poster(api, chats, pace)
            prompts = Prompts(bridge, api, chats, store, poster)
            shower = Shower(api, chats, pace, poster, prompts)
            updates = Updates()

            @bridge.posts
            async def post(part: Part) -> str:
                if not part.reply.prompt_id:
                    # Before the post, which would else be without an outcome if this takes long.
                    with anyio.move_on_after(_CLOSE_SECONDS):
                        await prompts.close_turn(part.chat_id, part.reply.reply_to)
                return await poster.post(part)

            bridge.splits(poster.split)
            bridge.shows(shower.show)
            bridge.takes("external_update")(updates.take)
            async with bridge:
                try:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(bridge.serve)
                        await self._take_updates(api, chats, prompts, updates)
                except ExceptionGroup as problems:
                    raise _first_of(problems) from None

    async def _take_updates(
        self, api: Api, chats: Chats, prompts: Prompts, updates: Updates
    ) -> None:
        table, timing = self._table, self._timing
        outage = Outage(self._bridge, timing)
        me = await self._find_me(api, outage)
        attachments = Attachments(api, table.max_attachment_bytes, timing.retry_seconds)
        takes_all = table.groups == "all"
        parts = (self._bridge, api, me, Access(table), chats, prompts, attachments)
        intake = Intake(*parts, takes_all=takes_all)
        if table.mode == "webhook":
            secret = read_secret("TELEGRAM_WEBHOOK_SECRET", table.webhook_secret_file)
            webhook = Webhook(self._bridge, api, intake, timing, table.webhook_url, secret)
            await webhook.serve(updates)
        else:
            await Polling(self._bridge, api, intake, timing).serve()

    async def _find_me(self, api: Api, outage: Outage) -> Me:
        """Return what Telegram says of the bot, as soon as it does."""
        while True:
            try:
                said = await api.call(GetMe())
            except Fault as fault:
                await outage.wait(fault)
            else:
                log.info("the bot is @%s", said.get("username"))
                return Me(int(said["id"]), str(said.get("username") or ""))


def _first_of(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    first = problems.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
