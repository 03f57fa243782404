"""Which spawner to use, and those in use: each is opened for its first process, left at the end.

systemd is used where its manager answers, else processes of our own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import structlog

from busd.supervise.logs import find_journal
from busd.supervise.service_manager import find_manager
from busd.supervise.subprocess import SubprocessSpawner
from busd.supervise.systemd import SystemdSpawner
from busd.supervise.worker import Spawner, SpawnFailed, SupervisorSettings

log = structlog.get_logger()


class Spawners:
    """The open spawners of one state directory, by their own name.

    Each lives in a task of its own: what a spawner opens it must close in the same task.
    """

    def __init__(
        self, state: Path, settings: SupervisorSettings, start_soon: Callable[..., object]
    ) -> None:
        self._state = state
        self._settings = settings
        self._start_soon = start_soon
        self._open: dict[str, _OpenSpawner] = {}
        self._names: dict[str, str] = {}  # what `auto` means here, once found out
        self._is_asking = anyio.Lock()

    async def get(self, wanted: str) -> Spawner:
        """Return a spawner, opened if need be; raise SpawnFailed if it cannot be opened."""
        async with self._is_asking:
            if wanted not in self._names:
                self._names[wanted] = await spawner_name(wanted)
        name = self._names[wanted]
        if name not in self._open:
            opened = self._open[name] = _OpenSpawner()
            self._start_soon(self._keep_open, name, opened)
        opened = self._open[name]
        await opened.is_tried.wait()
        if opened.spawner is None:
            if self._open.get(name) is opened:
                del self._open[name]  # the next one may have more luck
            raise SpawnFailed(opened.problem)
        return opened.spawner

    async def _keep_open(self, name: str, opened: _OpenSpawner) -> None:
        try:
            chosen = await choose_spawner(name, self._settings, self._state)
            async with chosen as spawner:
                opened.spawner = spawner
                opened.is_tried.set()
                await opened.is_over.wait()
        except SpawnFailed as problem:
            opened.problem = str(problem)
        finally:
            opened.is_tried.set()
            opened.is_closed.set()

    async def reload(self, settings: SupervisorSettings) -> list[tuple[str, str]]:
        """Apply other settings; return each spawner that cannot in full, and why."""
        self._settings = settings
        problems = []
        for name, opened in list(self._open.items()):
            if opened.spawner is not None:
                problems += [(name, why) for why in await opened.spawner.reload(settings)]
        return problems

    async def close(self) -> None:
        """Close all spawners: they end their processes, or leave them to the next daemon."""
        for opened in self._open.values():
            opened.is_over.set()
        for opened in list(self._open.values()):
            await opened.is_closed.wait()


class _OpenSpawner:
    def __init__(self) -> None:
        self.spawner: Spawner | None = None
        self.problem = "the spawner could not be opened"
        self.is_tried = anyio.Event()
        self.is_over = anyio.Event()
        self.is_closed = anyio.Event()


async def choose_spawner(wanted: str, settings: SupervisorSettings, state: Path) -> Spawner:
    """Return the spawner that is wanted, not entered yet; raise SpawnFailed if there is none.

    Only one of a kind may be open for a state directory; `auto` is one of the other two.
    """
    if wanted == "subprocess":
        _warn_if_not_kept(settings)
        return SubprocessSpawner(state=state, settings=settings)
    manager, reason = await find_manager()
    if manager is not None:
        journal = await find_journal()
        place = "files" if journal is None else "the journal"
        log.info("spawner.chosen", spawner="systemd", wanted=wanted, reason=reason, logs=place)
        return SystemdSpawner(state=state, settings=settings, manager=manager, journal=journal)
    if wanted == "systemd":
        raise SpawnFailed(f"workers are to be run by systemd, but {reason}")
    log.info("spawner.chosen", spawner="subprocess", wanted=wanted, reason=reason)
    _warn_if_not_kept(settings)
    return SubprocessSpawner(state=state, settings=settings)


async def spawner_name(wanted: str) -> str:
    """Return the name of the spawner that `choose_spawner` would choose."""
    if wanted != "auto":
        return wanted
    manager, _ = await find_manager()
    return "subprocess" if manager is None else "systemd"


def _warn_if_not_kept(settings: SupervisorSettings) -> None:
    """Warn that a service takes all its processes with it, those that are to be kept, too."""
    if settings.when_bus_stops == "keep" and _is_unit():
        log.warning(
            "workers.not_kept",
            reason="systemd ends them with the bus: they are processes of its service",
            fix='use the spawner "systemd", or set agents.when_bus_stops = "stop"',
        )


def _is_unit() -> bool:
    """Return whether systemd has started this very process."""
    # Not $INVOCATION_ID: all that a unit starts has it, every shell in a terminal, too.
    return "NOTIFY_SOCKET" in os.environ or os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())
