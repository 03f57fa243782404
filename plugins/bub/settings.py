"""The settings of Bub: the `[agents]` table, and one `[workers.NAME]` table per channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from busd import ConfigError, DeclaredSettings, Finding
from busd.agent.program_check import (
    check_no_secret,
    find_program_fault,
    has_openai_extra,
    openai_extra_fix,
)
from busd.quantities import (
    Bytes,
    Count,
    CountOrZero,
    Days,
    Percent,
    Seconds,
    SecondsOrZero,
    about,
)

if TYPE_CHECKING:
    from busd import PluginSettings


# With the chat formats of the gateway.
_CHANNEL_TYPES = (
    *("telegram", "discord", "hook", "web", "terminal"),
    *("tkr", "group", "stage", "agentiq"),
)


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The workers of one channel; the table `default` is for every channel without its own.

    With no program at all the built-in echo answers.
    """

    command: Annotated[
        list[str],
        about("Any program that reads a message's text and prints the answer. Default: an echo."),
    ] = []
    agent: Annotated[list[str], about("Instead: a program that is itself a peer of the bus.")] = []
    openai_url: Annotated[
        str, about("Instead: an endpoint with the OpenAI chat completions API.")
    ] = ""
    model: Annotated[str, about("The model to use at that endpoint.")] = ""
    pass_text: Annotated[
        Literal["stdin", "argument"], about("How the program gets the text: `stdin` or `argument`.")
    ] = "stdin"  # noqa: S105 - no password
    persistent: Annotated[
        Literal["no", "lines", "json"],
        about("One process for the whole conversation: `no`, `lines` or `json`."),
    ] = "no"
    until: Annotated[str, about("The line that ends an answer if `persistent` is `lines`.")] = ""
    prompt: Annotated[
        str, about("The prompt that such a program prints when it waits for the next line.")
    ] = ""
    stream: Annotated[bool, about("Send each line of the answer as soon as it is printed.")] = False
    when_busy: Annotated[
        Literal["queue", "interrupt", "merge", "reject"],
        about("A message during a turn: `queue`, `interrupt`, `merge` or `reject`."),
    ] = "queue"
    turn_seconds: Annotated[Seconds, about("Time limit per turn.")] = 300.0
    idle_seconds: Annotated[
        SecondsOrZero, about("Time without a message after which the worker is stopped; 0: never.")
    ] = 900.0
    spawner: Annotated[
        Literal["auto", "systemd", "subprocess"],
        about("`systemd`, `subprocess`, or `auto` for the best one available."),
    ] = "auto"
    environment: Annotated[
        dict[str, str], about("Additional environment variables. Not for secrets.")
    ] = {}
    credentials: Annotated[
        dict[str, str], about("Names and files of secrets, found in `$CREDENTIALS_DIRECTORY`.")
    ] = {}
    memory_max_bytes: Annotated[Bytes | None, about("Memory of one worker.")] = None
    file_max_bytes: Annotated[Bytes | None, about("Largest file that a worker may write.")] = None
    cpu_percent: Annotated[
        Percent | None, about("Processor time of one worker; 100 is one core.")
    ] = None
    tasks_max: Annotated[Count | None, about("Processes and threads of one worker.")] = None
    restarts: Annotated[
        CountOrZero, about("Consecutive failures after which a worker is not restarted.")
    ] = 5
    restart_seconds: Annotated[
        Seconds, about("Delay before the first restart; doubled each time, up to 30 seconds.")
    ] = 0.5


class AgentsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds for all workers together."""

    ready_seconds: Annotated[
        Seconds, about("Time a worker has from its start to `initialize`.")
    ] = 30.0
    stop_seconds: Annotated[Seconds, about("Time a worker has to exit before it is killed.")] = 5.0
    max_workers: Annotated[Count, about("Maximum number of workers.")] = 1_000
    max_starting: Annotated[
        Count | None, about("Workers that may start at the same time. Default: twice the cores.")
    ] = None
    channel_types: Annotated[
        list[str], about("Types of channel that a `spawn_request` may name.")
    ] = msgspec.field(default_factory=lambda: list(_CHANNEL_TYPES))
    when_bus_stops: Annotated[
        Literal["stop", "keep"],
        about("`stop` workers with the bus, or `keep` them for the next one."),
    ] = "stop"
    adopt_seconds: Annotated[
        Seconds, about("Time that kept workers wait for the bus to return.")
    ] = 60.0
    memory_max_bytes: Annotated[
        Bytes | None, about("Memory of all workers together (systemd).")
    ] = None
    cpu_percent: Annotated[
        Percent | None, about("Processor time of all workers together (systemd).")
    ] = None
    tasks_max: Annotated[
        Count | None, about("Processes and threads of all workers together (systemd).")
    ] = None
    keep_days: Annotated[Days, about("How long workspaces of stopped agents are kept.")] = 90.0


class BubSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tables of the settings file that are ours."""

    agents: AgentsSettings = AgentsSettings()
    workers: Annotated[
        dict[str, WorkerSettings],
        about("The workers of one channel; `workers.default` is for channels without a table."),
    ] = {}

    def worker(self, channel: str) -> WorkerSettings:
        """Return the table of a channel, or the default one."""
        return self.workers.get(channel) or self.workers.get("default") or WorkerSettings()


# What the types cannot express


def check(own: BubSettings) -> None:
    """Raise ConfigError for a table with several programs."""
    for name, worker in own.workers.items():
        programs = {key: getattr(worker, key) for key in ("command", "agent", "openai_url")}
        said = [key for key, value in programs.items() if value]
        if len(said) > 1:
            raise ConfigError(f"workers.{name} has {' and '.join(said)}: say only one of them")


def find_doubts(own: BubSettings, limits: PluginSettings) -> Iterator[Finding]:
    """Find settings with which workers would not start, or not end in time."""
    yield from _impatient_plugins(own.agents, limits)
    for name, worker in own.workers.items():
        yield from _missing_parts(name, worker)


def _impatient_plugins(agents: AgentsSettings, limits: PluginSettings) -> Iterator[Finding]:
    """The plugin that ends the workers must be given the time that they are given."""
    if agents.when_bus_stops == "stop" and agents.stop_seconds >= limits.stop_seconds:
        seconds = f"{agents.stop_seconds:g}"
        words = (
            f"agents.stop_seconds is {seconds} and plugins.stop_seconds only "
            f"{limits.stop_seconds:g}: a stopping bus would be gone before its workers"
        )
        fix = f"set plugins.stop_seconds to more than {seconds}"
        yield Finding("configuration", "warning", words, fix)


def _missing_parts(name: str, worker: WorkerSettings) -> Iterator[Finding]:
    """Find a program that is not there, or an extra that is not installed: no agent would start."""
    for key, words in (("command", worker.command), ("agent", worker.agent)):
        # As its worker sees it; a relative path is one of the workspace, which nobody knows yet.
        if words and (fault := find_program_fault(words[0], worker.environment.get("PATH"))):
            fix = f"install it, or change workers.{name}.{key}"
            yield Finding("workers", "problem", f"workers.{name}.{key}: {fault}", fix)
    if worker.openai_url:
        yield from _missing_for_endpoint(name, worker)


def _missing_for_endpoint(name: str, worker: WorkerSettings) -> Iterator[Finding]:
    try:
        check_endpoint(worker)
    except ConfigError as problem:
        fix = f"change the table workers.{name}"
        yield Finding("workers", "problem", f"workers.{name}: {problem}", fix)
    if not has_openai_extra():
        missing = f"workers.{name}.openai_url needs httpx, which is not installed"
        yield Finding("workers", "problem", missing, f"run: {openai_extra_fix()}")


def check_endpoint(worker: WorkerSettings) -> None:
    """Raise ConfigError for an endpoint that cannot be named on a command line, or has no model."""
    check_no_secret(worker.openai_url)
    if not worker.model:
        raise ConfigError("an openai_url needs a model")


settings = DeclaredSettings(BubSettings, check=check, find_doubts=find_doubts)
