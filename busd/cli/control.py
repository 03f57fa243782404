"""The verbs that control a running bus: reload, stop, and address, which says where it is."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Any

import click

from busd.cli.talk import bus_options, with_client
from busd.errors import BusdError, ConfigError, NoAnswer
from busd.ops.output import print_json

if TYPE_CHECKING:
    from busd.client.client import Client

_BAD_CONFIGURATION, _FAILURE = 78, 1
_QUIET_SECONDS = 1.0  # a stop that takes longer is explained
_SPARE_SECONDS = 5.0  # besides what the bus itself says that it may take


@click.command()
@bus_options
def reload(address: str | None, as_json: bool) -> None:
    """Reload the settings and plugins of the bus, and print what changed.

    Exit code 78: the settings were refused and the old ones stay. Exit code 1: they were taken,
    but not all plugins.

    \b
    Examples:
      busd reload
      busd reload --json | jq .needRestart
    """
    done = with_client(address, lambda bus: bus.call("bus.reload"))
    if as_json:
        print_json(done)
    elif done["refused"]:
        raise ConfigError(f"reload refused, the old settings stay: {done['refused']}")
    else:
        _print_reload(done)
    if done["refused"]:
        raise click.exceptions.Exit(_BAD_CONFIGURATION)
    if done["plugins"]:
        raise click.exceptions.Exit(_FAILURE)


def _print_reload(done: dict[str, Any]) -> None:
    click.echo(f"changed: {', '.join(done['changed']) or 'no setting'}")
    for name, change in done["pluginChanges"].items():
        click.echo(f"plugin {name}: {change}")
    if done["needRestart"]:
        click.echo(f"needs a restart: {', '.join(done['needRestart'])}")
    for warning in done["warnings"]:
        click.echo(f"warning: {warning}", err=True)
    for plugin in done["plugins"]:
        words = f"plugin {plugin['name']} was refused: {plugin['reason']} ({plugin['origin']})"
        click.echo(f"busd: {words}", err=True)


@click.command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.01),
    metavar="S",
    help="Wait at most. [default: as long as the bus says that it may take]",
)
@bus_options
def stop(timeout: float | None, address: str | None, as_json: bool) -> None:
    """Stop the bus and wait until it has ended; it answers what it has accepted first.

    Exit code 75: it has not ended in time.

    \b
    Examples:
      busd stop
      busd stop --timeout 60 && busd serve
    """
    begun = time.monotonic()
    process, told = with_client(address, _tell_to_stop)
    limit = timeout if timeout is not None else told["withinSeconds"] + _SPARE_SECONDS
    has_ended = process.wait(limit)
    seconds = time.monotonic() - begun
    if as_json:
        print_json({"stopped": has_ended, "pid": process.pid, "seconds": round(seconds, 3)})
    if has_ended is False:
        raise NoAnswer(
            f"the bus (process {process.pid}) has not ended within {limit:g} s; "
            f"`kill {process.pid}` makes it stop without waiting for answers"
        )
    if as_json:
        return
    if has_ended is None:
        click.echo("the bus is stopping; its process is not on this host", err=True)
    else:
        click.echo(f"the bus has stopped (process {process.pid}, {seconds:.1f} s)", err=True)
    if told["startsOnDemand"]:
        words = "systemd holds its sockets: the next client starts it again"
        click.echo(f"{words}, unless you stop busd.socket, too", err=True)


async def _tell_to_stop(bus: Client) -> tuple[_Process, dict[str, Any]]:
    about = await bus.call("bus.about")
    process = _Process(about["process"]["pid"], about["process"]["startTicks"])
    return process, await bus.call("bus.stop")


class _Process:
    """The process of a bus, opened while it runs: its number may be another's afterwards."""

    def __init__(self, pid: int, ticks: int) -> None:
        from busd.ops.control import start_ticks

        self.pid = pid
        self._descriptor: int | None = None
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return
        if start_ticks(pid) == ticks:
            self._descriptor = descriptor
        else:  # of another host: here the number means another process
            os.close(descriptor)

    def wait(self, seconds: float) -> bool | None:
        """Return True if it has ended in time, None if it is not a process of this host."""
        if self._descriptor is None:
            return None
        watch = select.poll()
        watch.register(self._descriptor, select.POLLIN)
        if watch.poll(min(_QUIET_SECONDS, seconds) * 1000):
            return True
        if seconds > _QUIET_SECONDS:
            words = f"waiting until process {self.pid} has ended, at most {seconds:g} s …"
            click.echo(words, err=True)
        return bool(watch.poll(max(0.0, seconds - _QUIET_SECONDS) * 1000))


@click.command()
@click.option("--path", "is_path", is_flag=True, help="Print only the path of the Unix socket.")
@click.option("--address", "-a", metavar="ADDR", help="Where the bus is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")
def address(is_path: bool, address: str | None, as_json: bool) -> None:
    """Print the address at which clients look for the bus.

    \b
    Examples:
      busd address
      nc -N -U "$(busd address --path)" < requests.jsonl
    """
    from busd.wire.places import find_bus

    found = find_bus(address)
    path = found.path if found.scheme == "unix" else None
    if is_path and path is None:
        raise BusdError(f"the bus is at {found}, which is no Unix socket")
    if as_json:
        print_json({"address": str(found), "path": path})
    else:
        click.echo(path if is_path else str(found))
