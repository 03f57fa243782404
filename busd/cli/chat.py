"""`busd chat`: talk to an agent, in the same way as every bridge does."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from busd.cli.talk import bus_options, with_client
from busd.errors import BusdError

if TYPE_CHECKING:
    from busd.chat.chat import Command, TerminalChat
    from busd.client.client import Client

_ROUTE = "system:route"
_HELP = """\
/agents  the agents of this bus
/stop    stop what is being answered (as Ctrl-C)
/quit    leave (as Ctrl-D)
//…      say something that begins with /"""


@click.command()
@click.option("--as", "chat_id", metavar="ID", help="Chat as terminal:ID [default: login name].")
@click.option("--agent", metavar="ADDRESS", help="Talk to this address, not to your own agent.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.01),
    default=600.0,
    show_default=True,
    metavar="S",
    help="In a pipe: time limit per answer; then its turn is cancelled.",
)
@bus_options
def chat(
    chat_id: str | None, agent: str | None, timeout: float, address: str | None, as_json: bool
) -> None:
    """Chat with an agent; one is started for you if there is none.

    On a terminal Ctrl-C clears a half-typed line, else stops an answer, else leaves; Ctrl-D
    leaves, and /help lists the commands. In a pipe each line is a message whose answer is waited
    for; a failure ends it.

    \b
    Examples:
      busd chat
      busd chat --agent agent:echo
      echo "what is 6 times 7?" | busd chat
    """
    from busd.bus.address import check_address

    if sys.stdin is None:  # `busd chat <&-`
        raise BusdError("there is no standard input to read from")
    check_address(_ROUTE if agent is None else agent)
    name = f"terminal:{_login_name() if chat_id is None else chat_id}"
    check_address(name)
    taken = with_client(address, _names)
    if name in taken and chat_id is not None:
        click.echo(f"{name} chats elsewhere, too: both see the answers", err=True)
    elif name in taken:
        name = next(f"{name}-{n}" for n in range(2, 10_000) if f"{name}-{n}" not in taken)
        click.echo(f"you chat elsewhere already; here you are {name}", err=True)

    async def talk(bus: Client) -> None:
        from busd.chat.chat import TerminalChat

        chat = TerminalChat(bus, agent or _ROUTE, as_json=as_json, answer_seconds=timeout)
        chat.screen.hint(f"you are {bus.client_id}; /help lists the commands")
        await chat.run(_commands())

    # uvloop would make the terminal non-blocking, for the shell as well.
    with_client(address, talk, name, use_uvloop=False)


def _login_name() -> str:
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a uid without a name
        name = "somebody"
    return re.sub(r"[^\w.@-]", "-", name)


async def _names(bus: Client) -> set[str]:
    return {peer["clientId"] for peer in (await bus.status())["connections"]}


def _commands() -> dict[str, Command]:
    return {"/agents": _show_agents, "/stop": _stop, "/help": _show_help, "/quit": _quit}


async def _show_agents(chat: TerminalChat) -> None:
    from busd.cli.agents import agent_rows
    from busd.ops.output import print_json, print_table

    found = await chat.bus.call("agents.list")
    chat.screen.end_line()
    if chat.is_json:
        chat.console.write(lambda: print_json(found))
    else:
        chat.console.write(lambda: print_table(agent_rows(found["agents"])))


async def _stop(chat: TerminalChat) -> None:
    await chat.stop()


async def _show_help(chat: TerminalChat) -> None:
    chat.screen.end_line()
    chat.console.write(lambda: click.echo(_HELP, err=True))


async def _quit(chat: TerminalChat) -> None:
    chat.leave()
