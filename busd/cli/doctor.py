"""`busd doctor`: check the whole set-up and say how to mend what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from busd.cli.install import chosen_flavour, flavour_option

if TYPE_CHECKING:
    from busd.finding import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@flavour_option
@click.option("--config", type=click.Path(), metavar="FILE", help="The settings to check.")
@click.option("--address", "-a", metavar="ADDR", help="Where the bus is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")
def doctor(flavour: str | None, config: str | None, address: str | None, as_json: bool) -> None:
    """Check the set-up: settings, sockets, state, clock, limits, systemd.

    The exit code is 0 if there is no problem, 1 if there is one; warnings do not count.

    \b
    Examples:
      busd doctor
      sudo busd doctor --system
      busd doctor --json | jq 'select(.level != "ok")'
    """
    from busd.ops.doctor import examine
    from busd.ops.install import find_layout

    layout = find_layout(chosen_flavour(flavour))
    problems = 0
    for finding in examine(layout, Path(config) if config else None, address):
        problems += finding.level == "problem"
        if as_json:
            _print_json(finding)
        else:
            _print(finding)
    if problems:
        raise click.exceptions.Exit(1)


def _print(finding: Finding) -> None:
    level = click.style(f"{finding.level:<7}", fg=_COLOURS[finding.level])
    click.echo(f"{level}  {finding.item}: {finding.says}")
    if finding.fix:
        click.echo(f"         → {finding.fix}")


def _print_json(finding: Finding) -> None:
    import msgspec

    click.echo(msgspec.json.encode(finding).decode())
