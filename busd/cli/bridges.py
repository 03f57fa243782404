"""`busd bridges`: the bridges of the bus; `busd bridge`: run one in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from busd.cli.agents import LsByDefault, age_of
from busd.cli.process_logs import follow_logs, log_options
from busd.cli.talk import bus_options, refusals_as_failures, with_client
from busd.ops.output import print_json, print_table, printable

if TYPE_CHECKING:
    from busd.client.client import Client

Json = dict[str, Any]  # as the bus answers it
_NO_BRIDGES = "this bus has no bridges; `busd plugins` says what runs on it"


@click.group(cls=LsByDefault)
def bridges() -> None:
    """Manage the bridges: processes that connect other chat systems to the bus.

    A table such as [bridges.telegram] in busd.toml starts one with the bus. Without a verb it is
    ls.

    \b
    Examples:
      busd bridges ls
      busd bridges logs telegram --follow
      busd bridges restart telegram
    """


@bridges.command("ls")
@bus_options
def bridges_ls(address: str | None, as_json: bool) -> None:
    """List bridges: their processes, and what each says of the other system.

    \b
    Example:
      busd bridges ls --json | jq '.bridges[] | select(.state != "running")'
    """
    found = _call(address, "bridges.list", {})
    if as_json:
        print_json(found)
        return
    rows = [("BRIDGE", "STATE", "PID", "LINK", "LAST UPDATE", "QUEUE", "RESTARTS", "DETAIL")]
    for each in found["bridges"]:
        status = each.get("status", {})
        rows.append(
            (
                each["name"],
                each["state"],
                str(each.get("pid", "-")),
                _text(status.get("state")),
                age_of(_text(status.get("last_update_at"))),
                _text(status.get("queue")),
                str(each.get("restarts", 0)),
                detail_of(each),
            )
        )
    print_table(rows)


def detail_of(bridge: Json) -> str:
    """Return what somebody who looks after a bridge should know first."""
    if bridge["state"] in ("failed", "waiting"):
        return str(bridge.get("reason", ""))
    status = bridge.get("status", {})
    if paused := status.get("paused_until"):
        return f"paused until {paused}"
    return str(status.get("detail", ""))


def _text(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


@bridges.command("show")
@click.argument("name")
@bus_options
def bridges_show(name: str, address: str | None, as_json: bool) -> None:
    """Show all that is known of the bridge NAME, with the last lines it wrote.

    \b
    Example:
      busd bridges show telegram
    """
    found = _call(address, "bridges.show", {"name": name})
    if as_json:
        print_json(found)
        return
    bridge = found["bridge"]
    status = bridge.pop("status", {})
    print_table([(key, _text(value)) for key, value in bridge.items()])
    if status:
        click.echo()
        print_table([(key, _text(value)) for key, value in status.items()])
    if found["lastLines"]:
        click.echo()
        for line in found["lastLines"]:
            click.echo(printable(f"  {line}", keep="\t"))


@bridges.command("logs")
@click.argument("name")
@log_options
@bus_options
def bridges_logs(name: str, follow: bool, lines: int, address: str | None, as_json: bool) -> None:
    """Print what the bridge NAME wrote to stderr and stdout.

    \b
    Example:
      busd bridges logs telegram --follow
    """

    async def talk(bus: Client) -> None:
        asked = {"name": name}
        await follow_logs(bus, "bridges.logs", asked, lines, follow=follow, as_json=as_json)

    with refusals_as_failures(_NO_BRIDGES):
        with_client(address, talk)


@bridges.command("restart")
@click.argument("name")
@bus_options
def bridges_restart(name: str, address: str | None, as_json: bool) -> None:
    """End the bridge NAME and start it again, also after it has failed.

    \b
    Example:
      busd bridges restart telegram
    """
    done = _call(address, "bridges.restart", {"name": name})
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['name']} is {done['state']}", err=True)


def _call(address: str | None, method: str, params: Json) -> Json:
    with refusals_as_failures(_NO_BRIDGES):
        found: Json = with_client(address, lambda bus: bus.call(method, params))
    return found


@click.command()
@click.argument("name")
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE",
    help="TOML file with settings. [default: that of the bus]",
)
@click.option("--settings", "effective", type=click.Path(), hidden=True)
def bridge(name: str, config: str | None, effective: str | None) -> None:
    """Run the bridge of the plugin NAME in the foreground; Ctrl-C stops it.

    It waits for the bus, and needs the extra of its name, such as busd[telegram]. Set enabled =
    false in its table, or the bus runs one, too.

    \b
    Example:
      busd bridge telegram
    """
    from busd.bridge.running import run_bridge
    from busd.ops.logs import set_up_logs
    from busd.settings.config import load_settings, read_settings

    settings = read_settings(effective) if effective else load_settings(config)
    set_up_logs(settings.log_level)
    run_bridge(name, settings)
