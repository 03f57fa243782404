"""Lines: the messages of each channel, pushed one after the other.

    read what was missed (after READY) → live messages in order → idle

The position of a channel is saved after `push` has returned, and live messages are pushed only when
those before them are. So whatever happens to this process, the next one reads on from there.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from hashlib import sha256

import anyio
import discord
from anyio.abc import TaskGroup

from busd import Bridge, BusdError, CallRefused, Refuse
from busd.bridge import Inbound, TooLarge
from busd_plugins.discord.faults import NoPermission, translated
from busd_plugins.discord.outlet import Outlet, question_of
from busd_plugins.discord.reading import inbound_of, is_direct
from busd_plugins.discord.record import Record
from busd_plugins.discord.session import BotClient, Session
from busd_plugins.discord.settings import DiscordTable

log = logging.getLogger("busd.discord")

MAX_WAITING = 100  # live messages of a channel; beyond that they are read from its history
PAGE = 100
MAX_AGE_SECONDS = 7 * 86_400  # of what is read
_OVERLAP_SECONDS = 10  # messages may come out of order
_KEY_SECONDS = 12 * 3600  # the bus recognizes messages for longer than this
_MAX_DIRECT = 1_000  # channels that are read after READY
_MAX_HANDLED = 10_000
_PARALLEL_READS = 4
_COMMAND_SECONDS = 30  # by then it would stop something else
_STOP_WORDS = ("/stop", "!stop")


class Line:
    """What waits in a channel."""

    def __init__(self, channel_id: int, *, direct: bool) -> None:
        self.channel_id = channel_id
        self.is_direct = direct
        self.waiting: deque[tuple[discord.Message, bool]] = deque()  # and whether it is an edit


class Lines:
    """The channels in which there is something to do."""

    tasks: TaskGroup

    def __init__(
        self,
        bridge: Bridge,
        table: DiscordTable,
        session: Session,
        record: Record,
        outlet: Outlet,
    ) -> None:
        self._bridge = bridge
        self._table = table
        self._session = session
        self._record = record
        self._outlet = outlet
        self._since = record.since(_now())
        self._own_id = 0
        self._lines: dict[int, Line] = {}
        self._gaps: dict[int, int] = {}  # after which message a channel is to be read
        self._read: set[int] = set()  # channels without a gap that have no position
        self._handled: OrderedDict[str, None] = OrderedDict()
        self._readers = anyio.CapacityLimiter(_PARALLEL_READS)

    # Events of the gateway

    def connected(self) -> None:
        """Note that messages may have been missed in every channel."""
        user = self._session.client().user
        self._own_id = user.id if user else 0
        self._read.clear()
        direct = []
        for channel_id, position in self._record.positions().items():
            self._gaps.setdefault(channel_id, _start_of(position.message))
            if position.is_direct:
                direct.append((position.message, channel_id))
        for _, channel_id in sorted(direct, reverse=True)[:_MAX_DIRECT]:
            self._wake(channel_id, direct=True)

    def guild_seen(self, guild: discord.Guild) -> None:
        """Read the channels of a server in which something was written."""
        channels: list[discord.TextChannel | discord.VoiceChannel | discord.Thread] = []
        channels += [*guild.text_channels, *guild.voice_channels, *guild.threads]
        for channel in channels:
            gap = self._gap(channel.id)
            if gap is None:
                continue
            if (channel.last_message_id or 0) > gap:
                self._wake(channel.id, direct=False)
            else:
                self._close_gap(channel.id)

    def message_came(self, message: discord.Message, *, is_edit: bool) -> None:
        self._bridge.note_update()
        channel_id, direct = message.channel.id, is_direct(message)
        line = self._wake(channel_id, direct=direct)
        if len(line.waiting) < MAX_WAITING:
            line.waiting.append((message, is_edit))
        elif not is_edit:
            position = self._record.position(channel_id)
            start = self._since if position is None else _start_of(position)
            self._gaps.setdefault(channel_id, start)

    def pressed(self, interaction: discord.Interaction[BotClient]) -> None:
        """Buttons are the business of `Presses`."""

    def _wake(self, channel_id: int, *, direct: bool) -> Line:
        line = self._lines.get(channel_id)
        if line is None:
            line = self._lines[channel_id] = Line(channel_id, direct=direct)
            if self._record.position(channel_id) is None:
                # Before anything of it is pushed: a process after this one knows of it.
                self._record.advance(channel_id, self._since, is_direct=direct)
            self.tasks.start_soon(self._work, line)
        return line

    # Work

    async def _work(self, line: Line) -> None:
        while True:
            gap = self._gap(line.channel_id)
            if gap is not None:
                await self._read_on(line, gap)
            elif line.waiting:
                message, is_edit = line.waiting.popleft()
                await self._take(line, message, is_edit=is_edit)
            else:
                break
        del self._lines[line.channel_id]

    async def _read_on(self, line: Line, gap: int) -> None:
        """Push the next page of what was missed in a channel."""
        page = await self._page(line, gap)
        for message in page:
            await self._take(line, message, is_late=True)
            if self._gaps.get(line.channel_id, gap) <= message.id:
                self._gaps[line.channel_id] = message.id
        if len(page) < PAGE:
            self._close_gap(line.channel_id)

    async def _page(self, line: Line, gap: int) -> list[discord.Message]:
        """Return the oldest messages that are later than others; retry until that succeeds."""
        pause = 1.0
        while True:
            try:
                async with self._readers:
                    return await self._read_page(line, gap)
            except NoPermission as refusal:
                log.info("channel %d cannot be read: %s", line.channel_id, refusal.reason)
                return []
            except Refuse as refusal:
                if refusal.retry_seconds is None:
                    log.warning("channel %d cannot be read: %s", line.channel_id, refusal.reason)
                    return []
                pause = max(pause, refusal.retry_seconds)
            await anyio.sleep(pause)
            pause = min(pause * 2, 30.0)

    async def _read_page(self, line: Line, gap: int) -> list[discord.Message]:
        client = self._session.client()
        channel: object = client.get_channel(line.channel_id)
        if line.is_direct:
            channel = client.get_partial_messageable(line.channel_id)
        if not isinstance(channel, discord.abc.Messageable):
            return []  # gone, or of a kind without messages
        with translated():
            after = discord.Object(gap)
            return [
                each async for each in channel.history(limit=PAGE, after=after, oldest_first=True)
            ]

    async def _take(
        self, line: Line, message: discord.Message, *, is_edit: bool = False, is_late: bool = False
    ) -> None:
        """Push a message, if it is for the bot, and save the position."""
        inbound = inbound_of(
            message, self._table, self._own_id, direct=line.is_direct, is_edit=is_edit
        )
        if inbound is not None and inbound.external_id not in self._handled:
            await self._pass_on(line, inbound, is_late=is_late)
            self._handled[inbound.external_id] = None
            if len(self._handled) > _MAX_HANDLED:
                self._handled.popitem(last=False)
        if not is_edit:
            self._record.advance(line.channel_id, message.id, is_direct=line.is_direct)

    async def _pass_on(self, line: Line, inbound: Inbound, *, is_late: bool) -> None:
        if inbound.text.lower() in _STOP_WORDS:
            if not is_late or self._is_new(line, inbound):
                await self._stop(line, inbound)
            return
        try:
            receipt = await self._bridge.push(inbound)
        except (CallRefused, TooLarge) as refusal:
            await self._tell(line, inbound, f"⚠️ Your message was not accepted: {refusal}")
            return
        if not receipt.is_duplicate:
            # It is the answer to what was asked, if something was.
            self._record.close_questions(inbound.chat_id)

    def _is_new(self, line: Line, inbound: Inbound) -> bool:
        """Return whether a command from the history is still to be obeyed."""
        message, position = question_of(inbound.external_id), self._record.position(line.channel_id)
        is_recent = message is not None and _now() - message < _COMMAND_SECONDS * 1000 << 22
        return is_recent and (position is None or message is None or message > position)

    async def _stop(self, line: Line, inbound: Inbound) -> None:
        try:
            await self._bridge.cancel(inbound.chat_id)
        except (BusdError, Refuse) as problem:
            await self._tell(line, inbound, f"⚠️ Nothing was stopped: {problem}")
        else:
            await self._tell(line, inbound, "⏹️ Stopped.")

    async def _tell(self, line: Line, inbound: Inbound, text: str) -> None:
        nonce = sha256(f"{inbound.external_id} {text}".encode()).hexdigest()[:24]
        try:
            await self._outlet.send(
                line.channel_id, text[:500], nonce=nonce, reply_to=inbound.external_id
            )
        except Refuse as refusal:
            log.info("the user of message %s learns nothing: %s", inbound.turn, refusal.reason)

    # Gaps

    def _gap(self, channel_id: int) -> int | None:
        """Return after which message a channel is to be read; None if nothing was missed."""
        if channel_id in self._gaps:
            return self._gaps[channel_id]
        return None if channel_id in self._read else self._since

    def _close_gap(self, channel_id: int) -> None:
        self._gaps.pop(channel_id, None)
        self._read.add(channel_id)


def _now() -> int:
    return discord.utils.time_snowflake(discord.utils.utcnow())


def _start_of(position: int) -> int:
    """Return where to begin reading: some seconds earlier, but nothing that is very old."""
    age = (_now() - position) >> 22  # milliseconds
    overlap = _OVERLAP_SECONDS * 1000 if age < _KEY_SECONDS * 1000 else 0
    return max(position - (overlap << 22), _now() - (MAX_AGE_SECONDS * 1000 << 22))
