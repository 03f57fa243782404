"""`busd plugins`: what runs inside the bus, where it came from, and what went wrong with it."""

from __future__ import annotations

from typing import Any

import click

from busd.cli.agents import LsByDefault
from busd.cli.talk import bus_options, with_client
from busd.errors import BusdError
from busd.ops.output import print_json, print_table


@click.group(cls=LsByDefault)
def plugins() -> None:
    """Show the plugins of the bus: what they handle, and whether they work.

    Without a verb it is ls.

    \b
    Examples:
      busd plugins ls
      busd plugins show bub
    """


@plugins.command("ls")
@bus_options
def plugins_ls(address: str | None, as_json: bool) -> None:
    """List plugins.

    \b
    Example:
      busd plugins ls --json
    """
    found = with_client(address, lambda bus: bus.call("bus.listPlugins"))
    if as_json:
        print_json(found)
        return
    rows = [("PLUGIN", "VERSION", "STATE", "FAULTS", "ORIGIN", "ABOUT")]
    for each in found["plugins"]:
        about = each["about"].split("\n")[0]
        rows.append(
            (
                each["name"],
                each["version"] or "-",
                each["state"],
                str(each["faults"]),
                each["origin"],
                about,
            )
        )
    print_table(rows)


@plugins.command("show")
@click.argument("name")
@bus_options
def plugins_show(name: str, address: str | None, as_json: bool) -> None:
    """Show all that is known of the plugin NAME, and why it is faulty or outdated.

    \b
    Example:
      busd plugins show bub
    """
    found = with_client(address, lambda bus: bus.call("bus.listPlugins"))
    named = [each for each in found["plugins"] if each["name"] == name]  # of several folders
    if not named:
        names = ", ".join(each["name"] for each in found["plugins"]) or "none"
        raise BusdError(f"there is no plugin {name}; this bus has {names}")
    for number, one in enumerate(named):
        if as_json:
            print_json(one)
            continue
        if number:
            click.echo()
        print_table([(key, _fact(value)) for key, value in one.items()])


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    return "-" if value is None or value == "" else str(value)
