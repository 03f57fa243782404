"""The command line: every verb but `serve` is a call to a running bus."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from busd import __version__
from busd.cli.agents import agents
from busd.cli.bridges import bridge, bridges
from busd.cli.chat import chat
from busd.cli.control import address, reload, stop
from busd.cli.dlq import dlq
from busd.cli.doctor import doctor
from busd.cli.gateway import gateway
from busd.cli.install import install
from busd.cli.journal import log, trace
from busd.cli.mailbox import mailbox
from busd.cli.operate import config, explain, token
from busd.cli.plugins import plugins
from busd.cli.send import send
from busd.cli.serve import serve
from busd.cli.talk import call, describe, listen, status
from busd.cli.worker import worker
from busd.errors import (
    BusdError,
    BusForbidden,
    BusUnreachable,
    CallRefused,
    ConfigError,
    ConnectionLost,
    NoAnswer,
    RequestError,
)
from busd.ops.output import printable

FAILURE, USAGE, UNREACHABLE, TRY_AGAIN, REFUSED, MISCONFIGURED = 1, 2, 69, 75, 77, 78
_BUSY_CODE, _NO_ENTRY_CODE = -32004, -32005
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a full disk, a lost terminal
_SHELLS = ("bash", "zsh", "fish")


class Verbs(click.Group):
    """The group of commands; a reader of their output may close the pipe early."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # `busd listen … | head`: the reader has closed the pipe.
            _forget_unwritten()
            ctx.exit(0)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failure, 2 usage, 69 bus unreachable, 75 try again, "
    "77 refused by rule, 78 bad configuration.",
)
@click.version_option(__version__, prog_name="busd", message="%(prog)s %(version)s")
def cli() -> None:
    """busd: the message bus for AI agents on this host.

    Start a bus with `busd serve`; talk over it from other terminals with the rest.
    The bus is found at --address, else $BUSD_ADDRESS, else the user's own Unix socket.
    """


@cli.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes busd's words in your shell.

    \b
    Example:
      busd completion bash > ~/.local/share/bash-completion/completions/busd
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "busd", "_BUSD_COMPLETE").source())


for verb in (
    serve,
    reload,
    stop,
    address,
    send,
    listen,
    chat,
    agents,
    gateway,
    bridges,
    bridge,
    mailbox,
    dlq,
    plugins,
    call,
    status,
    describe,
    trace,
    log,
    token,
    explain,
    config,
    install,
    doctor,
    worker,
):
    cli.add_command(verb)


def main() -> None:
    """Run the command line; every failure is one line on stderr and an exit code that tells."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an old terminal has no → to show
    try:
        code = cli.main(prog_name="busd", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(USAGE)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except OSError as problem:
        if problem.errno not in _UNWRITABLE:
            raise
        _forget_unwritten()
        click.echo(f"busd: what it prints cannot be written: {problem.strerror}", err=True)
        sys.exit(FAILURE)
    except UnicodeError:
        click.echo("busd: what was typed or piped in is not UTF-8", err=True)
        sys.exit(USAGE)
    except BusdError as problem:
        click.echo(f"busd: {printable(str(problem))}", err=True)  # peers have a word in it
        sys.exit(exit_code_of(problem))


def _forget_unwritten() -> None:
    """Prevent the interpreter from flushing a closed pipe again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code_of(problem: BusdError) -> int:
    """Return the exit code that tells a script what to do about a failure."""
    match problem:
        case ConfigError():
            return MISCONFIGURED
        case BusForbidden():
            return REFUSED
        case BusUnreachable():
            return UNREACHABLE
        case NoAnswer() | ConnectionLost():
            return TRY_AGAIN
        case CallRefused(code=code) if code == _BUSY_CODE:
            return TRY_AGAIN
        case CallRefused(code=code) if code == _NO_ENTRY_CODE:
            return REFUSED
        case CallRefused(data={"rule": str(rule)}) if rule.startswith(("grant", "policy")):
            return REFUSED
        case RequestError() | CallRefused(code=-32601 | -32602):
            return USAGE
        case _:
            return FAILURE
