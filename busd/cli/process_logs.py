"""What the verbs share that print the log of a process: their options, and the printing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from busd.ops.output import print_json, printable

if TYPE_CHECKING:
    from busd.client.client import Client

_FOLLOW_SECONDS = 0.5
_MAX_LINES = 1_000

F = TypeVar("F", bound=Callable[..., Any])


def log_options(function: F) -> F:
    """Add what each verb has that prints a log."""
    follow = click.option("--follow", "-f", is_flag=True, help="Go on printing as it writes.")
    lines = click.option(
        "--lines",
        "-n",
        type=click.IntRange(1, _MAX_LINES),
        default=100,
        show_default=True,
        metavar="N",
        help="At most so many of those there are.",
    )
    return follow(lines(function))


async def follow_logs(
    bus: Client, method: str, whose: dict[str, Any], lines: int, *, follow: bool, as_json: bool
) -> None:
    """Print the last lines of a log, and on request those that are still to come."""
    import anyio

    asked = whose | {"lines": lines}
    while True:
        for line in (await bus.call(method, asked))["lines"]:
            asked = whose | {"lines": _MAX_LINES, "after": line["id"]}
            print_json(line) if as_json else _print_line(line["text"])
        if not follow:
            return
        await anyio.sleep(_FOLLOW_SECONDS)


def _print_line(text: str) -> None:
    click.echo(printable(text, keep="\t"))
    sys.stdout.flush()
