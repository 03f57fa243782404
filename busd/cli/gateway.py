"""`busd gateway`: run the gateway, look at it, and manage the tokens of its users."""

from __future__ import annotations

import sys
from typing import Any

import click

from busd.cli.talk import bus_options, with_client
from busd.ops.output import print_json, print_table


class RunByDefault(click.Group):
    """A group of verbs whose name alone means its `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
        if (not args or is_option) and not ctx.resilient_parsing:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=RunByDefault)
def gateway() -> None:
    """Run the gateway: clients of TKR, group chat, stage chat and AgentIQ talk to agents.

    `busd serve --gateway`, or `enabled = true` in the table [gateway] of busd.toml, starts it with
    the bus. Without a verb it is run.

    \b
    Examples:
      busd gateway
      busd gateway status
      busd gateway token new ann
    """


@gateway.command("run")
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE",
    help="TOML file with settings. [default: that of the bus]",
)
@click.option("--listen", "-l", metavar="ADDR", help="HOST:PORT to listen on.")
@click.option("--settings", "effective", type=click.Path(), hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON line.")
def gateway_run(
    config: str | None, listen: str | None, effective: str | None, as_json: bool
) -> None:
    """Run the gateway in the foreground; Ctrl-C drains and stops it.

    It waits for the bus, and needs the extra busd[gateway].

    \b
    Examples:
      busd gateway run
      busd gateway run --listen 127.0.0.1:0 --json
    """
    from busd.errors import ConfigError
    from busd.gateway.settings import missing_packages

    if missing := missing_packages():
        raise ConfigError(
            f"the gateway needs {', '.join(missing)}; run: pip install 'busd[gateway]'"
        )
    from busd.gateway.serve import run_gateway
    from busd.ops.logs import set_up_logs
    from busd.settings.config import load_settings, read_settings

    flags: dict[str, object] = {"gateway": {"listen": listen}} if listen else {}
    settings = read_settings(effective) if effective else load_settings(config, flags)
    set_up_logs(settings.log_level)
    run_gateway(settings, _say_ready_json if as_json or effective else _say_ready)


def _say_ready(addresses: dict[str, str]) -> None:
    if addresses:
        click.echo("the gateway is listening on")
    else:
        click.echo("the gateway serves no chat format: gateway.dialects is empty")
    for line in lines_of(addresses):
        click.echo(f"  {line}")
    click.echo("Ctrl-C stops it.")
    sys.stdout.flush()


def _say_ready_json(addresses: dict[str, str]) -> None:
    import msgspec

    click.echo(msgspec.json.encode({"listening": list(addresses)}).decode())
    sys.stdout.flush()


def lines_of(addresses: dict[str, str]) -> list[str]:
    """Return a line for each address, with what it is for."""
    width = max(map(len, addresses), default=0)
    return [f"{address:{width}}  {about}" for address, about in addresses.items()]


@gateway.command("status")
@bus_options
def gateway_status(address: str | None, as_json: bool) -> None:
    """Show the process of the gateway, and who is connected.

    \b
    Example:
      busd gateway status
    """
    found = with_client(address, lambda bus: bus.call("gateway.status"))
    if as_json:
        print_json(found)
        return
    overview = found.pop("overview", {})
    print_table([(name, str(value)) for name, value in found.items()])
    if overview:
        click.echo()
        print_table([(_words(name), _short(value)) for name, value in overview.items()])


def _words(name: str) -> str:
    return name.removeprefix("is_").replace("_", " ")


def _short(value: Any) -> str:
    if isinstance(value, dict):
        counts = [f"{_words(name)} {count}" for name, count in value.items()]
        return ", ".join(counts) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


@gateway.command("describe")
@click.option("--config", type=click.Path(), metavar="FILE", help="TOML file with settings.")
def gateway_describe(config: str | None) -> None:
    """Print the AsyncAPI document of all chat formats that the gateway serves.

    \b
    Example:
      busd gateway describe > busd-gateway.asyncapi.json
    """
    from busd.gateway.asyncapi import describe
    from busd.gateway.loading import find_dialects
    from busd.gateway.settings import GatewaySettings
    from busd.plugin.declared import read_tables
    from busd.settings.config import load_settings

    settings = load_settings(config)
    table = read_tables(settings, GatewaySettings).gateway
    print_json(describe(find_dialects(table.dialects, settings.plugins), table.listen))


@gateway.command("restart")
@bus_options
def gateway_restart(address: str | None, as_json: bool) -> None:
    """End the gateway that the bus has started, and start it again.

    \b
    Example:
      busd gateway restart
    """
    from busd.errors import BusdError

    done = with_client(address, lambda bus: bus.call("gateway.restart"))
    if as_json:
        print_json(done)
    else:
        click.echo(f"the gateway is {done['state']}", err=True)
    if done["state"] == "waiting":  # it has ended, and will be started again
        raise BusdError(f"the gateway has ended: {done.get('reason', '')}")


@gateway.group("token")
def gateway_token() -> None:
    """Manage the tokens of the gateway's users.

    Programs of the user who runs the gateway, on this host, need none. These tokens do not
    let anybody join the bus.

    \b
    Examples:
      busd gateway token new ann > ann.token
      busd gateway token ls
      busd gateway token revoke ann
    """


@gateway_token.command("new")
@click.argument("name")
@bus_options
def gateway_token_new(name: str, address: str | None, as_json: bool) -> None:
    """Create a token for the user NAME and print it; it is shown only this once.

    \b
    Example:
      busd gateway token new ann > ann.token
    """
    made = with_client(address, lambda bus: bus.call("gateway.newToken", {"name": name}))
    if as_json:
        print_json(made)
    else:
        click.echo(made["token"])


@gateway_token.command("ls")
@bus_options
def gateway_token_ls(address: str | None, as_json: bool) -> None:
    """List the users that have a token.

    \b
    Example:
      busd gateway token ls
    """
    found = with_client(address, lambda bus: bus.call("gateway.listTokens"))
    if as_json:
        print_json(found)
        return
    print_table([("NAME", "CREATED"), *((t["name"], t["createdAt"]) for t in found["tokens"])])


@gateway_token.command("revoke")
@click.argument("name")
@bus_options
def gateway_token_revoke(name: str, address: str | None, as_json: bool) -> None:
    """Forget the token of the user NAME; connections that came with it are closed.

    \b
    Example:
      busd gateway token revoke ann
    """
    done = with_client(address, lambda bus: bus.call("gateway.revokeToken", {"name": name}))
    if as_json:
        print_json(done)
    else:
        click.echo(f"{name} is revoked", err=True)
