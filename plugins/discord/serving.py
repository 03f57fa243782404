"""Serving: puts the parts of the bridge together, and takes them apart in the right order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import anyio

from busd import Bridge, BusdError
from busd.bridge import Pace
from busd_plugins.discord.lines import Lines
from busd_plugins.discord.outlet import Outlet
from busd_plugins.discord.presses import Presses
from busd_plugins.discord.record import Record
from busd_plugins.discord.session import Session
from busd_plugins.discord.settings import DiscordTable
from busd_plugins.discord.showing import Showing
from busd_plugins.discord.splitting import split_reply

# Discord allows 5 messages in 5 seconds in a channel (discord.py waits for that by itself) and 50
# requests per second in all; "typing…" lasts 10 seconds.
PACE = Pace(show_seconds=1.5, refresh_seconds=8.0, total_per_second=40.0, post_seconds=30.0)


async def serve_discord(bridge: Bridge, table: DiscordTable, pace: Pace = PACE) -> None:
    """Serve until cancelled; raise BusdError if the bus refuses us, or the token is in use."""
    bridge.pace = pace
    session = Session(bridge, table)
    try:
        await _serve(bridge, table, session)
    except BaseExceptionGroup as group:
        # An operator reads one line, so the fault is raised as it is.
        for fault in _faults(group):
            raise fault from None
        raise
    finally:
        # After the bridge has finished what it was posting.
        await session.close()


async def _serve(bridge: Bridge, table: DiscordTable, session: Session) -> None:
    with closing(Record(Path(bridge.state))) as record:
        # A repetition may take two requests, and is not to be cancelled from outside.
        outlet = Outlet(session, record, bridge.pace.post_seconds / 3)
        lines = Lines(bridge, table, session, record, outlet)
        showing = Showing(outlet, record)
        presses = Presses(bridge, table, record)
        session.listeners = (lines, presses)
        bridge.splits(split_reply)
        bridge.posts(outlet.post)
        bridge.shows(showing.show)
        async with bridge, anyio.create_task_group() as tasks:
            lines.tasks = presses.tasks = tasks
            tasks.start_soon(session.run)
            await bridge.serve()
            tasks.cancel_scope.cancel()


def _faults(group: BaseExceptionGroup[BaseException]) -> list[BusdError]:
    found: list[BusdError] = []
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            found += _faults(each)
        elif isinstance(each, BusdError):
            found.append(each)
    return found
