"""The session: a bot that is logged in to Discord, again and again if need be.

| what happens | status | next |
| --- | --- | --- |
| READY or RESUMED | connected | |
| the gateway closes the connection | waiting | discord.py resumes the session, or begins one |
| Discord cannot be reached, 429, 5xx | waiting | another attempt after a pause |
| 401, close code 4004 | unauthorized | another attempt after a longer pause, with the token anew |
| close code 4014: the intent is not enabled | failed | the same |
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from typing import Any, Protocol

import anyio
import yarl

from busd import Bridge, Refuse
from busd.bridge import Secret, SlowDown, read_secret
from busd_plugins.discord.faults import FAULTS, Unauthorized, make_trace, refusal_of, translated
from busd_plugins.discord.settings import DiscordTable

with warnings.catch_warnings():
    # discord.py imports the module for voice, which Python deprecates.
    warnings.filterwarnings("ignore", "'audioop' is deprecated", DeprecationWarning)
    import discord
    from discord.gateway import DiscordWebSocket
    from discord.http import Route

log = logging.getLogger("busd.discord")

_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 60.0
_FIRST_LONG_PAUSE_SECONDS = 2.0  # for what an operator has to change
_MAX_LONG_PAUSE_SECONDS = 600.0
_CLOSE_SECONDS = 5.0
_BAD_TOKEN = 4004
_NEEDS_INTENT = (
    'groups = "all" needs the Message Content Intent: enable it at Discord\'s developer portal,'
    " under Bot"
)


class Listener(Protocol):
    """What gets the events of the gateway; nothing of it waits."""

    def connected(self) -> None: ...
    def guild_seen(self, guild: discord.Guild) -> None: ...
    def message_came(self, message: discord.Message, *, is_edit: bool) -> None: ...
    def pressed(self, interaction: discord.Interaction[BotClient]) -> None: ...


class BotClient(discord.Client):
    """discord.py's client: passes events on, and keeps nothing that could grow."""

    def __init__(self, session: Session, *, wants_content: bool) -> None:
        intents = discord.Intents(guilds=True, guild_messages=True, dm_messages=True)
        intents.message_content = wants_content
        super().__init__(
            intents=intents,
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            allowed_mentions=discord.AllowedMentions.none(),
            http_trace=make_trace(),
        )
        self._session = session

    async def on_connect(self) -> None:
        self._session.note_ready()

    async def on_resumed(self) -> None:
        self._session.note_resumed()

    async def on_disconnect(self) -> None:
        self._session.note_lost()

    async def on_guild_available(self, guild: discord.Guild) -> None:
        for each in self._session.listeners:
            each.guild_seen(guild)

    async def on_guild_join(self, guild: discord.Guild) -> None:
        for each in self._session.listeners:
            each.guild_seen(guild)

    async def on_message(self, message: discord.Message) -> None:
        for each in self._session.listeners:
            each.message_came(message, is_edit=False)

    async def on_raw_message_edit(self, edit: discord.RawMessageUpdateEvent) -> None:
        for each in self._session.listeners:
            each.message_came(edit.message, is_edit=True)

    async def on_interaction(self, interaction: discord.Interaction[BotClient]) -> None:
        for each in self._session.listeners:
            each.pressed(interaction)

    async def on_error(self, event_method: str, /, *args: Any, **kwargs: Any) -> None:
        log.exception("an event of Discord cannot be processed: %s", event_method)


class Session:
    """Keeps one client logged in."""

    def __init__(self, bridge: Bridge, table: DiscordTable) -> None:
        self._bridge = bridge
        self._table = table
        self._client: BotClient | None = None
        self._was_ready = False  # in this attempt
        self._closing: asyncio.Task[None] | None = None
        self.listeners: tuple[Listener, ...] = ()

    def client(self) -> BotClient:
        """Return the client that is logged in; raise Refuse if there is none now."""
        client = self._client
        if client is None or client.user is None or client.is_closed():
            raise Refuse("there is no connection to Discord", retry_seconds=1.0)
        return client

    async def run(self) -> None:
        """Stay connected until cancelled; raise ConfigError if there is no token to use."""
        Route.BASE = self._table.api_base.rstrip("/")
        quiet_library()
        pause = 0.0
        while True:
            secret = read_secret("DISCORD_TOKEN", self._table.token_file)
            with self._bridge.lease(secret):
                self._was_ready = False
                wanted = await self._attempt(secret)
            is_long = self._bridge.status.state in ("unauthorized", "failed")
            first = _FIRST_LONG_PAUSE_SECONDS if is_long else _FIRST_PAUSE_SECONDS
            most = _MAX_LONG_PAUSE_SECONDS if is_long else _MAX_PAUSE_SECONDS
            pause = first if self._was_ready else min(max(2 * pause, first), most)
            await anyio.sleep(max(pause, wanted))

    async def _attempt(self, secret: Secret) -> float:
        """Be connected until that fails; return how long Discord asks to wait."""
        await self.close()
        wants_content = self._table.groups == "all"
        self._client = client = BotClient(self, wants_content=wants_content)
        try:
            with translated():
                await client.login(secret.value)
                DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(await self._gateway_url(client))
            await client.connect()
        except Refuse as refusal:
            return self._note_refusal(refusal)
        except discord.PrivilegedIntentsRequired:
            self._bridge.report("failed", _NEEDS_INTENT)
        except discord.ConnectionClosed as closed:
            if closed.code == _BAD_TOKEN:
                return self._note_refusal(Unauthorized())
            self._bridge.report("failed", f"Discord closed the connection with {closed.code}")
        except FAULTS as problem:
            return self._note_refusal(refusal_of(problem))
        return 0.0

    async def _gateway_url(self, client: BotClient) -> str:
        """Return where the gateway is; raise SlowDown if no session may be begun now."""
        said = await client.http.request(Route("GET", "/gateway/bot"))
        try:
            left, reset = said["session_start_limit"]["remaining"], said["session_start_limit"]
            url = self._table.gateway_url or str(said["url"])
            if left <= 0:
                raise SlowDown(
                    float(reset["reset_after"]) / 1000,
                    reason="Discord allows no more sessions for now",
                )
        except (KeyError, TypeError):
            raise Refuse("Discord does not say where its gateway is", retry_seconds=5.0) from None
        return url

    def _note_refusal(self, refusal: Refuse) -> float:
        state = "unauthorized" if isinstance(refusal, Unauthorized) else "waiting"
        self._bridge.report(state, refusal.reason)  # type: ignore[arg-type]  # one of its literals
        return refusal.seconds if isinstance(refusal, SlowDown) else 0.0

    # What the client reports

    def note_ready(self) -> None:
        """Note a new session: what was written since the last one has to be read."""
        self._was_ready = True
        self._bridge.report("connected")
        for each in self.listeners:
            each.connected()

    def note_resumed(self) -> None:
        """Note that the session goes on; Discord repeats what we have missed."""
        self._bridge.report("connected")

    def note_lost(self) -> None:
        if self._bridge.status.state == "connected":
            self._bridge.report("waiting", "the connection to Discord is lost")

    def note_unauthorized(self) -> None:
        """Begin anew: Discord has refused the token in the middle of a session."""
        self._bridge.report("unauthorized", Unauthorized().reason)
        client = self._client
        if client is not None and not client.is_closed():
            self._closing = asyncio.create_task(client.close())

    async def close(self) -> None:
        """Leave Discord, within seconds."""
        client, self._client = self._client, None
        if client is None:
            return
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            try:
                await client.close()
            except Exception as problem:
                log.info("the connection to Discord was not closed: %s", type(problem).__name__)


class _Words(logging.Handler):
    """Logs what the library says without its tracebacks: they may show the request."""

    def emit(self, record: logging.LogRecord) -> None:
        fault = record.exc_info[0] if record.exc_info else None
        suffix = f": {fault.__name__}" if fault else ""
        # Never as an error: that would be our fault.
        log.log(min(record.levelno, logging.WARNING), "%s%s", record.getMessage(), suffix)


def quiet_library() -> None:
    """Let discord.py log warnings only, in one line each."""
    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False  # no voice here
    library = logging.getLogger("discord")
    library.propagate = False
    library.setLevel(logging.WARNING)
    library.handlers = [_Words()]
