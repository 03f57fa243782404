"""The verbs that read the activity log: trace and log."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from busd.cli.talk import bus_options, with_client
from busd.errors import BusdError
from busd.ops.output import print_json, print_table, printable

if TYPE_CHECKING:
    from busd.client.client import Client

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_FOLLOW_SECONDS = 0.5
_PAGE = 1000


@click.command()
@click.argument("message_id")
@bus_options
def trace(message_id: str, address: str | None, as_json: bool) -> None:
    """Show the whole life of one message: each attempt, each ack, and how long they took.

    \b
    Example:
      busd trace msg_01J9ZK3V8Q2W4N6T8X0B2D4F6H
    """
    found = with_client(address, lambda bus: bus.call("bus.trace", {"messageId": message_id}))
    _warn_if_behind(found)
    if as_json:
        print_json(found)
        return
    if not found["attempts"]:
        raise BusdError(f"the activity log knows no message {message_id}")
    for attempt in found["attempts"]:
        _print_attempt(attempt)


def _warn_if_behind(found: dict[str, Any]) -> None:
    if found.get("isBehind"):
        words = "the latest messages are not in the activity log yet; the log of the bus says why"
        click.echo(f"warning: {words}", err=True)


def _print_attempt(attempt: dict[str, Any]) -> None:
    took = "" if attempt["ms"] is None else f"  {attempt['ms']:.3f} ms"
    what = f"{attempt['from']} → {attempt['to']}  {attempt['status']}{took}"
    click.echo(printable(f"{attempt['sendStart']}  {what}", keep=""))
    if attempt["deliveries"]:
        head = ("  PEER", "STATUS", "HANDED OVER", "ANSWERED", "MS", "ERROR")
        print_table([head, *map(_delivery_row, attempt["deliveries"])])
    if attempt["payload"]:
        click.echo(printable(f"  payload {attempt['payload']}", keep=""))


def _delivery_row(delivery: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"  {delivery['peer'] or '-'}",
        delivery["status"],
        _clock_time(delivery["processStart"]),
        _clock_time(delivery["processFinish"]),
        "-" if delivery["ms"] is None else f"{delivery['ms']:.3f}",
        delivery["error"] or "",
    )


def _clock_time(stamp: str | None) -> str:
    return stamp[11:].rstrip("Z") if stamp else "-"


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on printing as messages pass.")
@click.option("--to", metavar="PATTERN", help="Only to these addresses.")
@click.option("--from", "sender", metavar="PATTERN", help="Only from these senders.")
@click.option(
    "--since", metavar="T", help="A time (2026-11-16T08:00Z) or an age (90s, 15m, 2h, 7d)."
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, _PAGE),
    default=100,
    show_default=True,
    help="At most so many of those there are.",
)
@bus_options
def log(
    follow: bool,
    to: str | None,
    sender: str | None,
    since: str | None,
    limit: int,
    address: str | None,
    as_json: bool,
) -> None:
    """Show the latest messages of the activity log.

    \b
    Examples:
      busd log --since 15m --to 'agent:*'
      busd log --follow --json
    """
    asked = {"to": to, "from": sender, "since": _parse_since(since) if since else None}

    async def talk(bus: Client) -> None:
        async for entry in _entries(bus, asked, limit, follow=follow):
            print_json(entry) if as_json else click.echo(_line(entry))

    with_client(address, talk)


async def _entries(
    bus: Client, asked: dict[str, Any], limit: int, *, follow: bool
) -> AsyncIterator[dict[str, Any]]:
    """Return the entries there are, then (if we follow) those that come."""
    import anyio

    # Until there is a first one to go on from; a second early, because clocks differ.
    began = {"since": time.time() - 1}
    page = await bus.call("bus.log", {**asked, "limit": limit})
    _warn_if_behind(page)
    last = 0
    while True:
        for entry in page["entries"]:
            last = entry["id"]
            yield entry
        if not follow:
            return
        await anyio.sleep(_FOLLOW_SECONDS)
        after = {"afterId": last} if last else began
        page = await bus.call("bus.log", {**asked, **after, "limit": _PAGE})


def _line(entry: dict[str, Any]) -> str:
    took = "" if entry["ms"] is None else f"{entry['ms']:.1f} ms"
    what = f"{entry['from']} → {entry['to']}"
    if entry["peer"] and entry["peer"] != entry["to"]:
        what += f" ({entry['peer']})"
    words = [entry["ts"], entry["messageId"], what, entry["status"], took, entry["error"] or ""]
    # A line is a line: what a peer says must not look like another.
    return printable("  ".join(word for word in words if word), keep="")


def _parse_since(text: str) -> float:
    """Parse a time or an age; return seconds since 1970."""
    if age := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return time.time() - float(age[1]) * _UNITS[age[2]]
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--since {text}: write a time like 2026-11-16T08:00Z or an age like 15m"
        ) from None
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
