"""The verbs that read the activity log: trace and log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from busd.cli.duration import parse_duration
from busd.cli.talk import bus_options, with_client
from busd.errors import BusdError
from busd.ops.output import print_json, print_table, printable

if TYPE_CHECKING:
    from busd.client.client import Client

_FOLLOW_SECONDS = 0.5
_PAGE = 1000
# What became of a message in a mailbox; there is no time to show.
_MAIL_WORDS = {
    "kept": "kept in the mailbox",
    "expired": "expired, now a dead letter",
    "dead": "given up, now a dead letter",
    "purged": "purged",
}


@click.command()
@click.argument("message_id")
@bus_options
def trace(message_id: str, address: str | None, as_json: bool) -> None:
    """Show the whole life of one message: each attempt, each ack, and how long they took.

    A message in a mailbox is shown with what became of it: kept, delivered, expired, given up.
    The reply of an agent that uses the worker kit follows.

    \b
    Example:
      busd trace msg_01J9ZK3V8Q2W4N6T8X0B2D4F6H
    """
    found = with_client(address, lambda bus: _ask_trace(bus, message_id))
    _warn_if_behind(found)
    if as_json:
        print_json(found)
        return
    if not found["attempts"]:
        raise BusdError(f"the activity log knows no message {message_id}")
    _print_attempts(found["attempts"])
    if more := found.get("moreAttempts"):
        click.echo(f"{more} more", err=True)
    if reply := found.get("reply"):
        click.echo(printable(f"reply {_reply_id(message_id)}", keep=""))
        _print_attempts(reply)


async def _ask_trace(bus: Client, message_id: str) -> dict[str, Any]:
    """Return what became of a message, and of the reply to it."""
    found: dict[str, Any] = await bus.call("bus.trace", {"messageId": message_id})
    reply = await bus.call("bus.trace", {"messageId": _reply_id(message_id)})
    return found | ({"reply": reply["attempts"]} if reply["attempts"] else {})


def _reply_id(message_id: str) -> str:
    """Return the id that the worker kit gives to the reply."""
    return f"{message_id}.reply"


def _print_attempts(attempts: list[dict[str, Any]]) -> None:
    numbers: Counter[str] = Counter()
    payload = None
    for attempt in attempts:
        if attempt["deliveries"]:
            numbers[attempt["to"]] += 1
        _print_attempt(attempt, numbers[attempt["to"]])
        # It is recorded with each attempt to deliver mail; shown once.
        if attempt["payload"] and attempt["payload"] != payload:
            payload = attempt["payload"]
            click.echo(printable(f"  payload {payload}", keep=""))


def _warn_if_behind(found: dict[str, Any]) -> None:
    if found.get("isBehind"):
        words = "the latest messages are not in the activity log yet; the log of the bus says why"
        click.echo(f"warning: {words}", err=True)


def _print_attempt(attempt: dict[str, Any], number: int) -> None:
    words = _MAIL_WORDS.get(attempt["status"], attempt["status"])
    if attempt["status"] in _MAIL_WORDS:
        words += f": {attempt['error']}" if "error" in attempt else ""
    elif attempt["ms"] is not None:
        words += f"  {attempt['ms']:.3f} ms"
    if number > 1 and attempt["deliveries"]:
        words += f"  (attempt {number})"
    what = f"{attempt['from']} → {attempt['to']}  {words}"
    click.echo(printable(f"{attempt['sendStart']}  {what}", keep=""))
    if attempt["deliveries"]:
        head = ("  PEER", "STATUS", "HANDED OVER", "ANSWERED", "MS", "ERROR")
        print_table([head, *map(_delivery_row, attempt["deliveries"])])


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
    if (age := parse_duration(text)) is not None:
        return time.time() - age
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--since {text}: write a time like 2026-11-16T08:00Z or an age like 15m"
        ) from None
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
