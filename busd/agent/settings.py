"""How worker agents are run: the `[agents]` table, and one `[workers.NAME]` table per channel."""

from __future__ import annotations

from typing import Literal

import msgspec

WhenBusy = Literal["queue", "interrupt", "merge", "reject"]
SpawnerName = Literal["auto", "systemd", "subprocess"]


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The workers of one channel; the table `default` is for every channel without its own.

    With no program at all the built-in echo answers.
    """

    command: list[str] = []  # any program: a message's text in, the answer out
    agent: list[str] = []  # instead: a program that is itself a peer of the bus
    openai_url: str = ""  # instead: an endpoint that speaks OpenAI's chat completions
    model: str = ""
    pass_text: Literal["stdin", "argument"] = "stdin"  # noqa: S105 - no password
    persistent: Literal["no", "lines", "json"] = "no"  # one process for the whole conversation
    until: str = ""  # persistent lines: this line ends an answer
    prompt: str = ""  # persistent lines: what the program shows when it waits for the next line
    stream: bool = False  # send each line as it comes
    when_busy: WhenBusy = "queue"  # a message that comes during a turn
    turn_seconds: float = 300.0
    idle_seconds: float = 900.0  # without a message; then the worker is stopped until the next
    spawner: SpawnerName = "auto"
    environment: dict[str, str] = {}
    credentials: dict[str, str] = {}  # name -> file that holds a secret
    memory_max_bytes: int | None = None
    file_max_bytes: int | None = None  # of any one file it writes
    cpu_percent: int | None = None
    tasks_max: int | None = None
    restarts: int = 5  # in a row, before it is called failed
    restart_seconds: float = 0.5  # before the first one; doubled each time, up to 30


class AgentsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds for all workers together."""

    ready_seconds: float = 30.0  # from start to `initialize`
    stop_seconds: float = 5.0  # from asking a worker to end to killing it
    max_workers: int = 1_000
    max_starting: int | None = None  # at a time; twice the cores
    max_waiting: int = 1_000  # messages held for one worker that is starting
    channel_types: list[str] = msgspec.field(
        default_factory=lambda: ["telegram", "discord", "web", "terminal"]
    )
    when_bus_stops: Literal["stop", "keep"] = "stop"
    adopt_seconds: float = 60.0  # how long kept workers wait for the bus to come back
    memory_max_bytes: int | None = None  # of all workers together (systemd)
    cpu_percent: int | None = None
    tasks_max: int | None = None
    keep_days: float = 90.0  # workspaces of agents that have stopped
