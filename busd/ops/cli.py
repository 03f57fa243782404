"""The command line: `busd serve` and the verbs that talk to a running bus."""

from __future__ import annotations

import sys

import click

from busd import __version__
from busd.errors import BusdError, ConfigError
from busd.ops.config import load_settings


@click.group()
@click.version_option(__version__, prog_name="busd")
def cli() -> None:
    """The message bus for AI agents on this host."""


@cli.command()
@click.option("--listen", multiple=True)
@click.option("--state")
@click.option("--loop", type=click.Choice(["uvloop", "asyncio", "trio"]))
@click.option("--policy", type=click.Choice(["open", "strict"]))
@click.option("--config")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--json", "as_json", is_flag=True)
def serve(listen, state, loop, policy, config, log_level, as_json) -> None:
    """Run the bus in the foreground until Ctrl-C."""
    from busd.daemon import run_daemon
    from busd.ops.logs import set_up_logs
    import msgspec

    settings = load_settings(
        config,
        dict(
            listen=list(listen) or None, state=state, loop=loop, policy=policy, log_level=log_level
        ),
    )
    set_up_logs(settings.log_level)

    def ready(addresses):
        print(msgspec.json.encode({"listening": [str(a) for a in addresses]}).decode(), flush=True)

    run_daemon(settings, ready)


def main() -> None:
    try:
        cli()
    except ConfigError as e:
        print(f"busd: {e}", file=sys.stderr)
        sys.exit(78)
