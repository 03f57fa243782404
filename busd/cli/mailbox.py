"""`busd mailbox`: the messages that wait until they are delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from busd.cli.agents import LsByDefault, age_of
from busd.cli.listing import (
    Json,
    confirm,
    counted,
    limit_option,
    list_first,
    payload_of,
    print_each,
    say_more,
    short_reason,
    short_time,
    yes_option,
)
from busd.cli.talk import bus_options, with_client
from busd.errors import BusdError
from busd.ops.output import print_json, print_table, printable

if TYPE_CHECKING:
    from busd.client.client import Client


@click.group(cls=LsByDefault)
def mailbox() -> None:
    """Manage the mailboxes: messages that the bus keeps until they are delivered.

    Without a verb it is ls.

    \b
    Examples:
      busd mailbox ls agent:
      busd mailbox show agent:bob --payload
      busd mailbox purge agent:bob
    """


@mailbox.command("ls")
@click.argument("prefix", default="")
@limit_option
@bus_options
def mailbox_ls(prefix: str, limit: int, address: str | None, as_json: bool) -> None:
    """List mailboxes, all or those whose address begins with PREFIX.

    DELIVERED BY names the peers that are here and answer for the address.

    \b
    Example:
      busd mailbox ls agent:
    """

    async def talk(bus: Client) -> tuple[list[Json], bool]:
        return await list_first(
            bus, "bus.listMailboxes", {"prefix": prefix}, limit, "mailboxes", "address"
        )

    found, has_more = with_client(address, talk)
    if as_json:
        print_each(found)
    else:
        head = ("ADDRESS", "MESSAGES", "BYTES", "OLDEST", "DEAD LETTERS", "DELIVERED BY")
        print_table([head, *map(_mailbox_row, found)])
    say_more(has_more)


def _mailbox_row(box: Json) -> tuple[str, ...]:
    counts = str(box["count"]), str(box["bytes"])
    names = " ".join(box["answeredBy"]) or "-"
    return (box["address"], *counts, age_of(box["oldest"]), str(box["dead"]), names)


@mailbox.command("show")
@click.argument("name", metavar="ADDRESS")
@click.option("--payload", "has_payload", is_flag=True, help="Show the payloads, too.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="ID", help="Only later.")
@limit_option
@bus_options
def mailbox_show(
    name: str, has_payload: bool, after: int, limit: int, address: str | None, as_json: bool
) -> None:
    """Show the messages that wait for an ADDRESS, in the order of their delivery.

    \b
    Example:
      busd mailbox show agent:bob --payload
    """

    async def talk(bus: Client) -> tuple[list[Json], bool]:
        asked = {"address": name, "after": after, "payloads": has_payload}
        return await list_first(bus, "bus.showMailbox", asked, limit, "messages", "id")

    found, has_more = with_client(address, talk)
    if as_json:
        print_each(found)
        return
    if not found:
        click.echo(f"there is no mail for {name}", err=True)
        return
    head = ("ID", "KEPT", "FROM", "MESSAGE", "ATTEMPTS", "STATE", "EXPIRES", "BYTES", "LAST REASON")
    print_table([head, *map(_mail_row, found)])
    for mail in found if has_payload else ():
        click.echo(printable(f"{mail['id']}: {payload_of(mail)}", keep=""))
    say_more(has_more)


def _mail_row(mail: Json) -> tuple[str, ...]:
    state = mail["state"]
    if "nextAttempt" in mail:
        state += f" at {short_time(mail['nextAttempt'])}"
    return (
        str(mail["id"]),
        age_of(mail["keptAt"]),
        mail["from"],
        str(mail["messageId"]),
        str(mail["attempts"]),
        state,
        short_time(mail["expiresAt"]),
        str(mail["bytes"]),
        short_reason(mail),
    )


@mailbox.command("purge")
@click.argument("name", metavar="ADDRESS")
@yes_option
@bus_options
def mailbox_purge(name: str, yes: bool, address: str | None, as_json: bool) -> None:
    """Delete all messages that wait for an ADDRESS.

    Whoever waits for what becomes of one is told that it was purged.

    \b
    Example:
      busd mailbox purge agent:bob --yes
    """
    confirm(f"Delete all mail for {name}?", yes=yes)
    done = with_client(address, lambda bus: bus.call("bus.purgeMailbox", {"address": name}))
    if as_json:
        print_json(done)
    if not done["purged"]:
        raise BusdError(f"there is no mail for {name}")
    click.echo(f"{counted(done['purged'], 'message')} deleted", err=True)
