"""`busd install`: make busd a service of this user or of the system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from busd.ops.install import Flavour, InstalledFile, Layout

F = TypeVar("F", bound="Callable[..., Any]")

_COLOURS = {"kept": "yellow", "unchanged": None}


def flavour_option(function: F) -> F:
    """Add the choice between the user's own bus and that of the system."""
    user = click.option(
        "--user", "flavour", flag_value="user", help="The bus of this user. [default unless root]"
    )
    system = click.option(
        "--system", "flavour", flag_value="system", help="The bus of the system. [default for root]"
    )
    return user(system(function))


def chosen_flavour(flavour: str | None) -> Flavour:
    """Return the flavour that was asked for; root means the system, everybody else themselves."""
    if flavour is None:
        return "system" if os.geteuid() == 0 else "user"
    return "system" if flavour == "system" else "user"


@click.command()
@flavour_option
@click.option("--dry-run", "-n", is_flag=True, help="Only say what would be done.")
@click.option("--force", is_flag=True, help="Replace changed files, too; they are kept as *.old.")
@click.option(
    "--root", type=click.Path(), metavar="DIR", default="/", help="Install below DIR (packaging)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def install(flavour: str | None, dry_run: bool, force: bool, root: str, as_json: bool) -> None:
    """Install busd as a service: systemd units and a commented busd.toml.

    A file that was changed since busd wrote it is kept, with a word on what differs. Changes of
    yours are best made in drop-ins: systemctl --user edit busd.service.

    \b
    Examples:
      busd install
      sudo busd install --system
      busd install --dry-run --json
    """
    from busd.ops.install import find_layout, find_program, hidden_program, next_steps
    from busd.ops.install import install as install_files

    layout = find_layout(chosen_flavour(flavour), Path(root).absolute())
    program = find_program()
    files = install_files(layout, program, is_forced=force, is_dry=dry_run)
    steps = next_steps(layout, files)
    warning = _warning(hidden_program(layout, program))
    if as_json:
        _print_json(layout, files, steps, warning)
    else:
        _print(files, steps, warning, is_dry=dry_run)
    # A busd.toml is there to be changed; a unit that is not ours may not do what busd needs.
    if any(
        file.action == "kept" and file.path != str(layout.placed(layout.config)) for file in files
    ):
        raise click.exceptions.Exit(1)


def _warning(hidden: str) -> str:
    if not hidden:
        return ""
    return (
        f"busd is installed in {hidden}, where the sandbox of the service cannot see it. Install"
        " it elsewhere, in a venv at /opt/busd say, and run /opt/busd/bin/busd install --system"
    )


def _print(files: list[InstalledFile], steps: list[str], warning: str, *, is_dry: bool) -> None:
    for file in files:
        click.echo(
            click.style(f"{file.action:<9}", fg=_COLOURS.get(file.action, "green")), nl=False
        )
        click.echo(f" {file.path}")
        if file.action in ("kept", "replaced"):
            for line in file.diff:
                click.echo(f"          {line}")
    if any(file.action == "kept" for file in files):
        click.echo("kept: changed since busd wrote it; --force replaces it", err=True)
    if warning:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    if is_dry:
        click.echo("nothing was written (--dry-run)", err=True)
        return
    click.echo("Next:", err=True)
    for step in steps:
        click.echo(f"  {step}", err=True)


def _print_json(layout: Layout, files: list[InstalledFile], steps: list[str], warning: str) -> None:
    import msgspec

    said = {"flavour": layout.flavour, "files": files, "next": steps, "warning": warning}
    click.echo(msgspec.json.encode(said).decode())
