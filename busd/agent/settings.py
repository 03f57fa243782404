"""How worker agents are run: the `[agents]` table, and one `[workers.NAME]` table per channel."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

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

WhenBusy = Literal["queue", "interrupt", "merge", "reject"]
SpawnerName = Literal["auto", "systemd", "subprocess"]


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
        WhenBusy, about("A message during a turn: `queue`, `interrupt`, `merge` or `reject`.")
    ] = "queue"
    turn_seconds: Annotated[Seconds, about("Time limit per turn.")] = 300.0
    idle_seconds: Annotated[
        SecondsOrZero, about("Time without a message after which the worker is stopped; 0: never.")
    ] = 900.0
    spawner: Annotated[
        SpawnerName, about("`systemd`, `subprocess`, or `auto` for the best one available.")
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
    max_waiting: Annotated[Count, about("Messages held for one worker that is starting.")] = 1_000
    channel_types: Annotated[
        list[str], about("Types of channel that a `spawn_request` may name.")
    ] = msgspec.field(default_factory=lambda: ["telegram", "discord", "web", "terminal"])
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
