"""`busd dlq`: the dead letters, messages that were given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

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
    yes_option,
)
from busd.cli.talk import bus_options, with_client
from busd.ops.output import print_json, print_table, printable

if TYPE_CHECKING:
    from busd.client.client import Client

_PORTION = 500  # of dead letters, as the bus wants them


@click.group(cls=LsByDefault)
def dlq() -> None:
    """Manage the dead letters: messages that were given up, and why.

    Without a verb it is ls. --from and --to take an address, or a pattern such as agent:*.

    \b
    Examples:
      busd dlq ls --to 'agent:*'
      busd dlq retry 4711
      busd dlq drop --from agent:mad --yes
    """


def _chosen_options(function: Any) -> Any:
    sender = click.option("--from", "sender", metavar="P", help="Only of these senders.")
    to = click.option("--to", metavar="P", help="Only to these addresses.")
    return sender(to(function))


@dlq.command("ls")
@_chosen_options
@limit_option
@bus_options
def dlq_ls(
    sender: str | None, to: str | None, limit: int, address: str | None, as_json: bool
) -> None:
    """List dead letters, in the order in which they were sent.

    \b
    Example:
      busd dlq ls --to agent:bob
    """

    async def talk(bus: Client) -> tuple[list[Json], bool]:
        return await list_first(bus, "bus.listDead", _patterns(to, sender), limit, "letters")

    found, has_more = with_client(address, talk)
    if as_json:
        print_each(found)
    else:
        head = ("ID", "GIVEN UP", "FROM", "TO", "MESSAGE", "ATTEMPTS", "BYTES", "REASON")
        print_table([head, *map(_letter_row, found)])
    say_more(has_more)


def _letter_row(letter: Json) -> tuple[str, ...]:
    return (
        str(letter["id"]),
        age_of(letter["buriedAt"]),
        letter["from"],
        letter["to"],
        str(letter["messageId"]),
        str(letter["attempts"]),
        str(letter["bytes"]),
        short_reason(letter),
    )


@dlq.command("show")
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@bus_options
def dlq_show(number: int, address: str | None, as_json: bool) -> None:
    """Show a dead letter with its payload.

    \b
    Example:
      busd dlq show 4711
    """
    letter = with_client(address, lambda bus: bus.call("bus.showDead", {"id": number}))
    if as_json:
        print_json(letter)
        return
    facts = {name: value for name, value in letter.items() if name not in ("payload", "state")}
    print_table([(name, str(value)) for name, value in facts.items()])
    click.echo(printable(payload_of(letter)))


@dlq.command("retry")
@click.argument("numbers", metavar="[ID…]", nargs=-1, type=click.IntRange(min=1))
@click.option("--all", "is_all", is_flag=True, help="All dead letters.")
@_chosen_options
@bus_options
def dlq_retry(
    numbers: tuple[int, ...],
    is_all: bool,
    sender: str | None,
    to: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Deliver dead letters again: each goes to the end of its mailbox.

    The exit code is 1 if one of them cannot be kept, as when its mailbox is full; it stays a dead
    letter.

    \b
    Examples:
      busd dlq retry 4711 4712
      busd dlq retry --to 'agent:*'
    """
    failures = 0

    async def talk(bus: Client) -> int:
        nonlocal failures
        total = 0
        async for page in _portions(bus, "bus.retryDead", numbers, is_all, to, sender):
            total += page["retried"]
            failures += page["failed"] + len(page["missing"])
            for letter in page["letters"]:
                print_json(letter) if as_json else click.echo(_retried_line(letter))
            _say_missing(page["missing"])
            if page["more"]:
                click.echo(f"{total} so far …", err=True)
        return total

    total = with_client(address, talk)
    click.echo(f"{counted(total, 'dead letter')} retried", err=True)
    if failures:
        raise click.exceptions.Exit(1)


def _retried_line(letter: Json) -> str:
    became = f"is now {letter['newId']}" if "newId" in letter else f"stays: {letter['error']}"
    return printable(f"{letter['id']}  {letter['to']}  {letter['messageId']}  {became}", keep="")


@dlq.command("drop")
@click.argument("numbers", metavar="[ID…]", nargs=-1, type=click.IntRange(min=1))
@click.option("--all", "is_all", is_flag=True, help="All dead letters.")
@_chosen_options
@yes_option
@bus_options
def dlq_drop(
    numbers: tuple[int, ...],
    is_all: bool,
    sender: str | None,
    to: str | None,
    yes: bool,
    address: str | None,
    as_json: bool,
) -> None:
    """Delete dead letters for good; without IDs it asks first.

    \b
    Examples:
      busd dlq drop 4711
      busd dlq drop --all --yes
    """
    _check_choice(numbers, is_all, to, sender)
    if not numbers:
        which = f"those from {sender or 'anybody'} to {to or 'anybody'}"
        confirm(f"Delete all dead letters{'' if is_all else f', {which}'}?", yes=yes)
    missing: list[int] = []

    async def talk(bus: Client) -> int:
        total = 0
        async for page in _portions(bus, "bus.dropDead", numbers, is_all, to, sender):
            total += page["dropped"]
            missing.extend(page["missing"])
            if page["more"]:
                click.echo(f"{total} so far …", err=True)
        return total

    total = with_client(address, talk)
    if as_json:
        print_json({"dropped": total, "missing": missing})
    _say_missing(missing)
    click.echo(f"{counted(total, 'dead letter')} deleted", err=True)
    if missing:
        raise click.exceptions.Exit(1)


async def _portions(
    bus: Client,
    method: str,
    numbers: tuple[int, ...],
    is_all: bool,
    to: str | None,
    sender: str | None,
) -> AsyncIterator[Json]:
    """Do something with dead letters, a portion per call."""
    _check_choice(numbers, is_all, to, sender)
    if numbers:
        for start in range(0, len(numbers), _PORTION):
            yield await bus.call(method, {"ids": list(numbers[start : start + _PORTION])})
        return
    asked: dict[str, Any] = {"all": True} if is_all else _patterns(to, sender)
    while True:
        page = await bus.call(method, asked)
        yield page
        if not page["more"]:
            return
        asked = asked | {"after": page["after"], "before": page["before"]}


def _check_choice(
    numbers: tuple[int, ...], is_all: bool, to: str | None, sender: str | None
) -> None:
    if bool(numbers) + is_all + (to is not None or sender is not None) != 1:
        raise click.UsageError("give IDs, or --all, or --from and --to")


def _patterns(to: str | None, sender: str | None) -> dict[str, Any]:
    given = {"to": to, "from": sender}
    return {name: pattern for name, pattern in given.items() if pattern is not None}


def _say_missing(missing: list[int]) -> None:
    for number in missing:
        click.echo(f"there is no dead letter {number}", err=True)
