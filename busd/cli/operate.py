"""The operator's verbs: token, explain, config."""

from __future__ import annotations

import sys
from typing import Any

import click

from busd.cli.talk import bus_options, with_client
from busd.ops.output import print_json, print_table


@click.group()
def token() -> None:
    """Manage the tokens that peers on TCP and WebSocket show.

    The owner of the bus needs none: its token lies in the state directory, and the command line
    and the SDK find it by themselves.

    \b
    Examples:
      busd token new discord-bridge > discord-bridge.token
      busd token ls
      busd token revoke discord-bridge
    """


@token.command("new")
@click.argument("name")
@bus_options
def token_new(name: str, address: str | None, as_json: bool) -> None:
    """Create a token called NAME and print it; it is shown only this once.

    \b
    Example:
      busd token new discord-bridge > /etc/busd/discord-bridge.token
    """
    made = with_client(address, lambda bus: bus.call("bus.newToken", {"name": name}))
    if as_json:
        print_json(made)
        return
    click.echo(made["token"])
    if sys.stdout.isatty():
        click.echo("Keep it in a file that only its user can read; busd keeps a hash.", err=True)


@token.command("ls")
@bus_options
def token_ls(address: str | None, as_json: bool) -> None:
    """List tokens.

    \b
    Example:
      busd token ls
    """
    found = with_client(address, lambda bus: bus.call("bus.listTokens"))
    if as_json:
        print_json(found)
        return
    print_table([("NAME", "CREATED"), *((t["name"], t["createdAt"]) for t in found["tokens"])])


@token.command("revoke")
@click.argument("name")
@bus_options
def token_revoke(name: str, address: str | None, as_json: bool) -> None:
    """Forget the token NAME and close the connections that came with it.

    \b
    Example:
      busd token revoke discord-bridge
    """
    done = with_client(address, lambda bus: bus.call("bus.revokeToken", {"name": name}))
    if as_json:
        print_json(done)
    else:
        click.echo(f"{name} is revoked", err=True)


@click.command()
@click.option("--from", "sender", required=True, metavar="ADDRESS", help="The message's sender.")
@click.option("--to", required=True, metavar="ADDRESS", help="Its destination.")
@click.option("--type", "kind", metavar="TYPE", help="Its payload's type.")
@click.option("--client-id", metavar="NAME", help="The peer that would send it [default: FROM].")
@click.option("--uid", type=int, help="Ask for this user.")
@click.option("--unit", help="Ask for this systemd unit.")
@click.option("--token", "token_name", metavar="NAME", help="Ask for the holder of this token.")
@bus_options
def explain(
    sender: str,
    to: str,
    kind: str | None,
    client_id: str | None,
    uid: int | None,
    unit: str | None,
    token_name: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Show whether a message is allowed, and by which rule.

    Without --uid, --unit or --token it checks the caller. Exit code 77: not allowed.

    \b
    Examples:
      busd explain --from tg:1 --to agent:bob
      busd explain --from tg:1 --to agent:bob --token discord-bridge
    """
    asked: dict[str, Any] = {"from": sender, "to": to, "clientId": client_id or sender}
    about = {"type": kind, "uid": uid, "unit": unit, "token": token_name}
    asked |= {name: value for name, value in about.items() if value is not None}
    found = with_client(address, lambda bus: bus.call("bus.explain", asked))
    if as_json:
        print_json(found)
    else:
        word = "allowed" if found["allowed"] else "refused"
        click.echo(f"{word} by {found['rule']}: {found['reason']}")
        if known_by := found.get("knownBy"):
            click.echo(f"you are known by {known_by}")
    if not found["allowed"]:
        raise click.exceptions.Exit(77)


@click.group()
def config() -> None:
    """Check or show the settings without starting a bus.

    \b
    Examples:
      busd config check
      busd config show --json | jq .delivery
    """


@config.command("check")
@click.option("--config", "path", type=click.Path(), metavar="FILE", help="The file to check.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")
def config_check(path: str | None, as_json: bool) -> None:
    """Read all settings and say what is wrong with them, if anything.

    \b
    Example:
      busd config check --config busd.toml
    """
    from busd.settings.config import config_files, load_settings
    from busd.settings.doubts import check_listening, find_doubts

    settings = load_settings(path)
    found = [*check_listening(settings), *find_doubts(settings)]
    doubts = [f"{each.says}; {each.fix}" for each in found]
    files = [str(file) for file in config_files(path)]
    if as_json:
        print_json({"ok": True, "files": files, "warnings": doubts})
        return
    for doubt in doubts:
        click.echo(f"warning: {doubt}", err=True)
    click.echo("ok: " + (" ".join(files) or "no file, only defaults"))


@config.command("show")
@click.option("--config", "path", type=click.Path(), metavar="FILE", help="The file to read.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")
def config_show(path: str | None, as_json: bool) -> None:
    """Print the settings that a bus started now would have.

    \b
    Example:
      busd config show --json | jq .delivery
    """
    from busd.settings.config import load_settings
    from busd.settings.defaults import encode_settings

    settings = load_settings(path)
    if as_json:
        print_json(settings)
        return
    click.echo(encode_settings(settings), nl=False)
