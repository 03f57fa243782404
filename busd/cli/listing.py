"""What the commands that list mail share: pages, options, words."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from busd.errors import BusdError
from busd.ops.output import print_json

if TYPE_CHECKING:
    from busd.client.client import Client

Json = Any  # whatever the bus answers
_MAX_PAGE = 500
_MAX_SHOWN_REASON = 60

limit_option = click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="At most so many of those there are.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


# Pages


async def list_first(
    bus: Client, method: str, asked: dict[str, Any], limit: int, name: str, last: str = ""
) -> tuple[list[Json], bool]:
    """Return the first items that a method lists, and whether there are more.

    The next page begins after the member `last` of the last item, or where the answer says.
    """
    asked = asked | {"limit": min(limit + 1, _MAX_PAGE)}
    return await _first(_pages(bus, method, asked, name, last), limit)


async def _pages(
    bus: Client, method: str, asked: dict[str, Any], name: str, last: str
) -> AsyncIterator[Json]:
    while True:
        page = await bus.call(method, asked)
        for item in page[name]:
            yield item
        if not page.get("more"):
            return
        asked = asked | {"after": page[name][-1][last] if last else page["after"]}


async def _first(items: AsyncIterator[Json], limit: int) -> tuple[list[Json], bool]:
    """Return the first items, and whether there are more."""
    found: list[Json] = []
    async for item in items:
        if len(found) == limit:
            return found, True
        found.append(item)
    return found, False


# Words


def confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here: repeat it with --yes")
    if not click.confirm(question, err=True):
        raise BusdError("nothing was deleted")


def print_each(items: list[Json]) -> None:
    for item in items:
        print_json(item)


def say_more(has_more: bool) -> None:
    if has_more:
        click.echo("there are more; --limit shows them", err=True)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def short_time(stamp: str) -> str:
    return f"{stamp[:19]}Z"


def short_reason(mail: Json) -> str:
    reason: str = mail["reason"]
    return reason if len(reason) <= _MAX_SHOWN_REASON else f"{reason[:_MAX_SHOWN_REASON]}…"


def payload_of(mail: Json) -> str:
    import msgspec

    if "payload" not in mail:
        return "(the payload does not fit into a frame of this connection)"
    return msgspec.json.encode(mail["payload"]).decode()
