"""`busd worker`: run an agent whose answers come from a command, an endpoint or an echo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from busd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from busd.agent.agent import Agent
    from busd.agent.turn import Turn


@click.command(context_settings={"show_default": True, "allow_interspersed_args": False})
@click.option("--exec", "is_exec", is_flag=True, help="Run COMMAND for each message; stands last.")
@click.option("--openai", "openai_url", metavar="URL", help="Ask an OpenAI-compatible endpoint.")
@click.option("--echo", "is_echo", is_flag=True, help="Answer with the same text. [the default]")
@click.option("--client-id", metavar="ID", help="Its address. [default: agent:$USER-worker]")
@click.option("--talkto", metavar="ADDR", help="Address it replies to. [default: the sender]")
@click.option("--workspace", metavar="DIR", help="Where it works and remembers. [default: here]")
@click.option("--reply-type", metavar="TYPE", help="Channel that the replies name.")
@click.option(
    "--when-busy",
    type=click.Choice(["queue", "interrupt", "merge", "reject"]),
    default="queue",
    help="What a message does that comes during a turn.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    metavar="S",
    help="A turn takes no longer.",
)
@click.option("--stream", is_flag=True, help="Show the answer while it is made.")
@click.option("--arg", "as_argument", is_flag=True, help="Text as last argument, not on stdin.")
@click.option(
    "--persistent",
    type=click.Choice(["lines", "json"]),
    help="One COMMAND for the whole conversation: a line in, a line out; or JSON objects.",
)
@click.option("--until", metavar="LINE", help="Persistent lines: an answer ends with this line.")
@click.option("--prompt", metavar="TEXT", help="Persistent lines: an answer ends when TEXT shows.")
@click.option("--model", metavar="M", help="Which model the endpoint is asked for.")
@click.option(
    "--loop",
    type=click.Choice(["asyncio", "uvloop", "trio"]),
    default="asyncio",
    help="Event loop; asyncio starts the fastest.",
)
@click.option("--address", "-a", metavar="ADDR", help="Where the bus is.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def worker(loop: str, **options: Any) -> None:
    """Run an agent on the bus until Ctrl-C.

    Each message's text goes to COMMAND's standard input; what it prints is the answer. An exit
    code other than 0, or a time-out, is reported to the sender. The API key of an endpoint
    is read from $CREDENTIALS_DIRECTORY/OPENAI_API_KEY or $OPENAI_API_KEY.

    \b
    Examples:
      busd worker --echo
      busd worker --client-id agent:words --exec wc -w
      busd worker --stream --arg --exec grep -rn --
      busd worker --persistent lines --prompt '> ' --exec llm chat
      busd worker --openai http://localhost:11434/v1 --model llama3.2
    """
    _check(**options)
    import logging

    import anyio

    from busd.agent.agent import serve_until_told

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    backend = "trio" if loop == "trio" else "asyncio"
    how = {"use_uvloop": True} if loop == "uvloop" else {}
    agent = _make_agent(**options)

    def greet() -> None:
        talk = f"busd chat --agent {agent.client_id}"
        click.echo(f"{agent.client_id} is on the bus; `{talk}` talks to it, Ctrl-C stops", err=True)

    is_watched = sys.stderr is not None and sys.stderr.isatty()  # else it is a log
    told = greet if is_watched else None
    anyio.run(serve_until_told, agent, told, backend=backend, backend_options=how)


def _check(
    is_exec: bool,
    is_echo: bool,
    openai_url: str | None,
    command: tuple[str, ...],
    as_argument: bool,
    persistent: str | None,
    until: str | None,
    prompt: str | None,
    model: str | None,
    workspace: str | None,
    **_: Any,
) -> None:
    """Raise UsageError for flags that do not belong together."""
    if is_exec + is_echo + bool(openai_url) > 1:
        raise click.UsageError("give one of --exec, --openai and --echo")
    if bool(command) != is_exec:
        raise click.UsageError("--exec needs a COMMAND, and stands before it")
    if (as_argument or persistent) and not is_exec:
        raise click.UsageError("--arg and --persistent belong to --exec")
    if as_argument and persistent:
        raise click.UsageError("--persistent reads its standard input: no --arg")
    if (until or prompt) and persistent != "lines":
        raise click.UsageError("--until and --prompt belong to --persistent lines")
    if until and prompt:
        raise click.UsageError("give one of --until and --prompt")
    if openai_url and not openai_url.startswith(("http://", "https://")):
        raise click.UsageError("--openai needs a URL that begins with http:// or https://")
    if bool(model) != bool(openai_url):
        raise click.UsageError("--openai and --model belong together")
    if is_exec:
        _check_program(command[0], workspace)


def _check_program(program: str, workspace: str | None) -> None:
    """Raise ConfigError if the program is missing, before a user waits for its answer."""
    from busd.agent.program_check import find_program_fault

    folder = Path(workspace or ".")
    if fault := find_program_fault(program, folder=folder):
        raise ConfigError(f"--exec: {fault}; install it, or name another program")


def _make_agent(
    client_id: str | None,
    talkto: str | None,
    workspace: str | None,
    reply_type: str | None,
    when_busy: Any,  # a WhenBusy, as click has checked
    seconds: float,
    address: str | None,
    **program: Any,
) -> Agent:
    """Return the agent that the flags describe."""
    from busd.agent.agent import Agent

    agent = Agent(
        client_id or "",
        talkto=talkto or "",
        workspace=workspace or "",
        reply_type=reply_type or "",
        when_busy=when_busy,
        turn_seconds=seconds,
        address=address,
        about="busd worker",
        arguments=[],
    )
    _add_handler(agent, **program)
    return agent


def _add_handler(
    agent: Agent,
    command: tuple[str, ...],
    openai_url: str | None,
    model: str | None,
    stream: bool,
    as_argument: bool,
    persistent: Any,
    until: str | None,
    prompt: str | None,
    **_: Any,
) -> None:
    # Each is imported only when it is wanted: two hundred workers may start at once.
    if persistent:
        from busd.agent.persistent_worker import PersistentWorker

        kept = PersistentWorker(
            agent,
            command,
            persistent,
            is_streaming=stream,
            until=until or "",
            prompt=prompt or "",
        )
        agent.answers(kept.answer)
    elif command:
        from busd.agent.exec_worker import ExecWorker

        once = ExecWorker(agent, command, as_argument=as_argument, is_streaming=stream)
        agent.answers(once.answer)
    elif openai_url:
        from busd.agent.openai_worker import OpenAIWorker

        agent.answers(OpenAIWorker(agent, openai_url, model or "", is_streaming=stream).answer)
    else:
        agent.answers(_echo(is_streaming=stream))


def _echo(*, is_streaming: bool) -> Callable[[Turn], Awaitable[str]]:
    """Return a handler that answers with the same text, word by word if asked."""

    async def echo(turn: Turn) -> str:
        if is_streaming:
            for word in turn.text.split(" "):
                await turn.delta(f"{word} ")
        return turn.text

    return echo
