"""`busd agents`: the worker agents of the bus, by the methods of its system agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from busd.cli.process_logs import follow_logs, log_options
from busd.cli.talk import bus_options, refusals_as_failures, with_client
from busd.errors import BusdError
from busd.ops.output import print_json, print_table, printable

if TYPE_CHECKING:
    from busd.client.client import Client

_STATES = ("spawning", "running", "stopped", "failed")
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))
_NO_AGENTS = "this bus has no agents; `busd plugins` says what runs on it"


class LsByDefault(click.Group):
    """A group of verbs whose name alone means its `ls`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
        if (not args or is_option) and not ctx.resilient_parsing:
            args = ["ls", *args]
        return super().parse_args(ctx, args)


@click.group(cls=LsByDefault)
def agents() -> None:
    """Manage the worker agents: each chat has one, started when it is first needed.

    Without a verb it is ls.

    \b
    Examples:
      busd agents ls
      busd agents logs agent:worker-5f2b9c01d3aa --follow
      busd agents stop agent:worker-5f2b9c01d3aa
    """


@agents.command("ls")
@click.option("--status", type=click.Choice(_STATES), help="Only these.")
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), metavar="N", help="At most so many.")
@bus_options
def agents_ls(status: str | None, limit: int | None, address: str | None, as_json: bool) -> None:
    """List agents, most recently active first.

    SETTINGS is "old" for a worker that runs with settings from before a reload; it is restarted
    after its turn.

    \b
    Example:
      busd agents ls --status running
    """
    asked = {"status": status, "limit": limit}
    given = {name: value for name, value in asked.items() if value is not None}
    found = _call(address, "agents.list", given)
    if as_json:
        print_json(found)
        return
    print_table(agent_rows(found["agents"]))
    shown, total = len(found["agents"]), found.get("total", 0)
    if shown < total:
        click.echo(f"{shown} of {total}; --limit shows more", err=True)


def agent_rows(found: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the table of agents, its head first."""
    head = ("AGENT", "CHAT", "STATUS", "PID", "LAST HEARD", "WAITING", "SETTINGS")
    rows: list[tuple[str, ...]] = [head]
    for each in found:
        pid, waiting = each.get("pid"), each.get("waiting")
        rows.append(
            (
                each["clientId"],
                f"{each['channel']}:{each['chatId']}",
                each["status"],
                "-" if pid is None else str(pid),
                age_of(each.get("lastActivity")),
                str(waiting or 0),
                "-" if pid is None else "old" if each.get("outdated") else "current",
            )
        )
    return rows


def age_of(stamp: str | None) -> str:
    """Return how long ago something was."""
    try:
        then = datetime.fromisoformat(stamp or "")
    except ValueError:
        return "-"
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds // length}{unit} ago"
    return f"{seconds}s ago"


@agents.command("show")
@click.argument("client_id", metavar="AGENT")
@bus_options
def agents_show(client_id: str, address: str | None, as_json: bool) -> None:
    """Show all that is known of an AGENT.

    Its session, the limits in force, the last lines it wrote.

    \b
    Example:
      busd agents show agent:worker-5f2b9c01d3aa
    """
    found = _call(address, "agents.show", {"clientId": client_id})
    if as_json:
        print_json(found)
        return
    facts = found["agent"] | {f"settings.{k}": v for k, v in found.get("settings", {}).items()}
    print_table([(name, _fact(value)) for name, value in facts.items()])
    if found.get("lastLines"):
        click.echo("last lines:")
        for line in found["lastLines"]:
            click.echo(printable(f"  {line}", keep="\t"))


def _fact(value: object) -> str:
    import msgspec

    if value is None or value in ("", {}, []):
        return "-"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@agents.command("spawn")
@click.argument("chat_id")
@click.option("--channel", default="terminal", show_default=True, help="Where the chat is.")
@click.option("--channel-type", metavar="TYPE", help="What answers look like [default: CHANNEL].")
@bus_options
def agents_spawn(
    chat_id: str,
    channel: str,
    channel_type: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Start the agent of a chat before its first message.

    Prints its address, also if it runs already.

    \b
    Example:
      busd agents spawn 123456789 --channel telegram
    """
    asked = {"chatId": chat_id, "channel": channel, "channelType": channel_type or channel}
    result = _call(address, "agents.spawn", asked)
    if as_json:
        print_json(result)
    if not result["success"]:
        raise (
            click.exceptions.Exit(1)
            if as_json
            else BusdError(
                printable(result.get("error") or "the agent could not be started", keep="")
            )
        )
    if not as_json:
        click.echo(printable(result["clientId"], keep=""))


@agents.command("stop")
@click.argument("client_id", metavar="AGENT")
@bus_options
def agents_stop(client_id: str, address: str | None, as_json: bool) -> None:
    """Stop an AGENT; the next message for it starts it again.

    \b
    Example:
      busd agents stop agent:worker-5f2b9c01d3aa
    """
    _change(address, "agents.stop", client_id, as_json=as_json)


@agents.command("restart")
@click.argument("client_id", metavar="AGENT")
@bus_options
def agents_restart(client_id: str, address: str | None, as_json: bool) -> None:
    """Stop an AGENT and start it again, with the settings of now.

    \b
    Example:
      busd agents restart agent:worker-5f2b9c01d3aa
    """
    _change(address, "agents.restart", client_id, as_json=as_json)


def _change(address: str | None, method: str, client_id: str, *, as_json: bool) -> None:
    record = _call(address, method, {"clientId": client_id})
    if as_json:
        print_json(record)
    else:
        click.echo(printable(f"{record['clientId']} is {record['status']}", keep=""), err=True)


@agents.command("logs")
@click.argument("client_id", metavar="AGENT")
@log_options
@bus_options
def agents_logs(
    client_id: str,
    follow: bool,
    lines: int,
    address: str | None,
    as_json: bool,
) -> None:
    """Print what an AGENT wrote to stderr and stdout.

    \b
    Example:
      busd agents logs agent:worker-5f2b9c01d3aa --follow
    """

    async def talk(bus: Client) -> None:
        asked = {"clientId": client_id}
        await follow_logs(bus, "agents.logs", asked, lines, follow=follow, as_json=as_json)

    with refusals_as_failures(_NO_AGENTS):
        with_client(address, talk)


@agents.command("export")
@bus_options
def agents_export(address: str | None, as_json: bool) -> None:
    """Print all sessions in the form of the reference's sessions.json.

    \b
    Example:
      busd agents export > sessions.json
    """
    import msgspec

    with refusals_as_failures(_NO_AGENTS):
        found = with_client(address, _export)
    if as_json:
        print_json(found)
    else:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())


async def _export(bus: Client) -> dict[str, Any]:
    """Return all sessions, in as many calls as it takes."""
    found: dict[str, Any] = await bus.call("agents.export")
    more = found.pop("more", 0)
    while more:
        page = await bus.call("agents.export", {"after": max(found["sessions"])})
        found["sessions"] |= page["sessions"]
        more = page.get("more", 0)
    return found


def _call(address: str | None, method: str, params: dict[str, Any]) -> Any:
    with refusals_as_failures(_NO_AGENTS):
        return with_client(address, lambda bus: bus.call(method, params))
