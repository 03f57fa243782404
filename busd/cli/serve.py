"""`busd serve`: run the bus."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from busd.settings.config import Settings
    from busd.wire.bus_address import BusAddress


@click.command(context_settings={"show_default": True})
@click.option(
    "--listen",
    "-l",
    multiple=True,
    metavar="ADDR",
    help="Where to listen; may be given several times. unix:/path or tcp://host:port (port 0: any "
    "free one). [default: the user's Unix socket and tcp://127.0.0.1:7892]",
)
@click.option("--state", metavar="DIR", help="Folder that outlives a restart.")
@click.option(
    "--loop",
    type=click.Choice(["uvloop", "asyncio", "trio"]),
    help="Event loop. [default: uvloop, the fastest]",
)
@click.option(
    "--policy",
    type=click.Choice(["open", "strict"]),
    help="strict: only what grants allow; open: everybody on this host. [default: strict]",
)
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE",
    help="TOML file with settings. [default: ~/.config/busd/busd.toml, if there]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="[default: info]",
)
@click.option(
    "--gateway", "with_gateway", is_flag=True, help="Start the gateway, too; see `busd gateway`."
)
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON line.")
def serve(
    as_json: bool, config: str | None, listen: tuple[str, ...], with_gateway: bool, **flags: Any
) -> None:
    """Run the bus in the foreground; Ctrl-C drains and stops it.

    \b
    Examples:
      busd serve
      busd serve --listen unix:/tmp/my.sock --listen tcp://127.0.0.1:0
      busd serve --config busd.toml --loop trio
      busd serve --gateway
    """
    from busd.daemon import run_daemon
    from busd.ops.logs import set_up_logs
    from busd.settings.config import load_settings

    said = {"listen": list(listen) or None, **flags}
    if with_gateway:
        said["gateway"] = {"enabled": True}
    settings = load_settings(config, said)
    set_up_logs(settings.log_level)
    say = _say_ready_json if as_json else partial(_say_ready, _find_gateway(settings))
    run_daemon(lambda: load_settings(config, said), lambda addresses: _try_to(say, addresses))


def _try_to(say: Callable[[list[BusAddress]], None], addresses: list[BusAddress]) -> None:
    """Print a line; a closed standard output (`busd serve | head -1`) does not end the bus."""
    import structlog

    try:
        say(addresses)
    except OSError as problem:
        # Nor at the very end, when Python writes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        structlog.get_logger("busd.ops").warning("daemon.unheard", reason=problem.strerror)


def _say_ready_json(addresses: list[BusAddress]) -> None:
    import msgspec

    from busd import __version__

    ready = {"listening": [str(address) for address in addresses], "version": __version__}
    click.echo(msgspec.json.encode(ready).decode())
    sys.stdout.flush()


def _find_gateway(settings: Settings) -> list[str]:
    """Return the lines that say where the gateway listens, if it is started with the bus."""
    from busd.gateway import GatewaySettings, missing_packages
    from busd.plugin.declared import read_tables

    table = read_tables(settings, GatewaySettings).gateway
    if not table.enabled or missing_packages():
        return []
    from busd.cli.gateway import lines_of
    from busd.errors import ConfigError
    from busd.gateway.loading import addresses_of, find_dialects

    try:
        return lines_of(addresses_of(find_dialects(table.dialects, settings.plugins), table.listen))
    except ConfigError:
        return []  # the gateway says so when it is started; the bus runs without it


def _say_ready(gateway: list[str], addresses: list[BusAddress]) -> None:
    """Print where the bus listens, and what to type next to try it."""
    from busd.wire.places import default_listen

    busd = _own_command()
    first = str(addresses[0])
    where = "" if first == default_listen()[0] else f" --address {shlex.quote(first)}"
    click.echo("busd is listening on")
    for address in addresses:
        also = "   (lines of JSON and WebSocket)" if address.scheme == "tcp" else ""
        click.echo(f"  {address}{also}")
    if gateway:
        click.echo("Clients of other chat formats connect to")
    for line in gateway:
        click.echo(f"  {line}")
    click.echo("Try, in other terminals:")
    click.echo(f"  {busd} listen agent:bob{where}")
    click.echo(f'  {busd} send agent:bob "hello" --wait{where}')
    click.echo(f"  {busd} chat{where}")
    click.echo(f"  {busd} status{where}")
    click.echo("Ctrl-C stops it.")
    sys.stdout.flush()


def _own_command() -> str:
    """Return what starts this program again when it is typed."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return shlex.join([sys.executable, "-m", "busd"])
    return shlex.quote(str(program.absolute()))
