"""The service manager, asked by its own programs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess
from typing import Literal

import anyio

Flavour = Literal["system", "user"]
_ANSWER_SECONDS = 10.0
_PROBE_SECONDS = 3.0
_MAX_RUNNING = 8  # of its programs at a time: a thousand starts at once take turns
_MAX_SLOW = 64


class ManagerSilent(Exception):
    """The service manager did not do what it was asked; the text is its own."""


class ServiceManager:
    """The manager of the system, or of one user."""

    def __init__(
        self,
        flavour: Flavour,
        *,
        run_by: Sequence[str] = (),  # a program that takes us to where the manager is
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.flavour = flavour
        self._run_by = list(run_by)
        self._environment = environment
        self._turns = anyio.Semaphore(_MAX_RUNNING)
        self._slow_turns = anyio.Semaphore(_MAX_SLOW)  # waiting for a worker to end is no work

    async def run(
        self, *words: str, seconds: float = _ANSWER_SECONDS, is_slow: bool = False
    ) -> CompletedProcess[bytes]:
        """Run a program of systemd's; raise ManagerSilent if it does not end in time."""
        try:
            async with self._slow_turns if is_slow else self._turns:
                with anyio.fail_after(seconds):
                    return await self._run(words)
        except TimeoutError:
            raise ManagerSilent(f"{words[0]} did not answer in {seconds:g} s") from None
        except OSError as problem:
            raise ManagerSilent(f"{words[0]}: {problem.strerror}") from None

    async def _run(self, words: tuple[str, ...]) -> CompletedProcess[bytes]:
        return await anyio.run_process(
            [*self._run_by, *words],
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            check=False,
            env=self._environment,
        )

    async def ask(
        self, *words: str, seconds: float = _ANSWER_SECONDS, is_slow: bool = False
    ) -> str:
        """Return the answer of `systemctl`; raise ManagerSilent if it has none."""
        command = ("systemctl", f"--{self.flavour}", *words)
        done = await self.run(*command, seconds=seconds, is_slow=is_slow)
        if done.returncode != 0:
            raise ManagerSilent(complaint(done))
        return done.stdout.decode(errors="replace")

    async def show(self, unit: str, names: Iterable[str]) -> dict[str, str]:
        """Return properties of a unit."""
        answer = await self.ask("show", unit, f"--property={','.join(names)}")
        pairs = (line.partition("=") for line in answer.splitlines())
        return {name: value for name, _, value in pairs}

    async def version(self) -> int:
        """Return the manager's version; 0 if it does not say."""
        answer = await self.ask("show", "--property=Version", "--value")
        found = re.search(r"\d+", answer)
        return int(found[0]) if found else 0

    async def states(self, pattern: str) -> dict[str, str]:
        """Return the units that match, each with its state: `active/running`, `failed/failed`."""
        answer = await self.ask(
            "list-units", "--all", "--plain", "--no-legend", "--full", "--no-pager", pattern
        )
        rows = (line.split(maxsplit=4) for line in answer.splitlines())
        return {row[0]: f"{row[2]}/{row[3]}" for row in rows if len(row) >= 4}


async def find_manager() -> tuple[ServiceManager | None, str]:
    """Find a manager that answers: of the system for root, else of the user; and say why."""
    if not _is_booted():
        return None, "this host was not booted with systemd"
    flavours: list[Flavour] = ["system", "user"] if os.geteuid() == 0 else ["user"]
    reason = ""
    for flavour in flavours:
        try:
            version = await ServiceManager(flavour).ask(
                "show", "--property=Version", "--value", seconds=_PROBE_SECONDS
            )
            return ServiceManager(flavour), f"the {flavour}'s manager answers: {version.strip()}"
        except ManagerSilent as problem:
            reason = f"the {flavour}'s manager does not answer: {problem}"
    return None, reason


def _is_booted() -> bool:
    return Path("/run/systemd/system").is_dir()


def complaint(done: CompletedProcess[bytes]) -> str:
    """Return what a program that failed said last, or how it ended if it said nothing."""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else f"exit code {done.returncode}, and no reason"
