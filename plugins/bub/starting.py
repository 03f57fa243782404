"""Starting a worker: what its process is started with, and the start that all wait for."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from busd import Refuse
from busd.supervise import Launch, SupervisorSettings
from busd_plugins.bub.command import worker_command
from busd_plugins.bub.settings import AgentsSettings, WorkerSettings

if TYPE_CHECKING:
    from busd import Context
    from busd_plugins.bub.sessions import Session


def config_of(session: Session) -> dict[str, Any]:
    """Return what the config.json of its workspace says."""
    return {
        "client_id": session.client_id,
        "channel": session.channel,
        "chat_id": session.chat_id,
        "channel_type": session.channel_type,
        "talkto": session.talkto,
        "settings": session.settings,
    }


def fingerprint_of(settings: WorkerSettings) -> str:
    """Return what tells the settings of a worker from others; `idle_seconds` needs no restart."""
    of_worker = msgspec.structs.replace(settings, idle_seconds=0.0)
    return sha256(msgspec.json.encode(of_worker)).hexdigest()[:16]


def supervisor_settings(agents: AgentsSettings) -> SupervisorSettings:
    """Return what the `[agents]` table says about the processes of all workers."""
    return msgspec.convert(agents, SupervisorSettings, from_attributes=True)


def launch_of(
    session: Session, settings: WorkerSettings, agents: AgentsSettings, ctx: Context
) -> Launch:
    """Return what its spawner needs to know; raise ConfigError if a secret would be seen."""
    command = worker_command(
        settings, session.client_id, session.talkto, session.workspace, session.channel_type
    )
    environment = {
        **settings.environment,
        "BUSD_ADDRESS": ctx.bus_address,
        "BUSD_CLIENT_ID": session.client_id,
        "BUSD_TALKTO": session.talkto,
        "BUSD_WORKSPACE": session.workspace,
        "BUSD_REPLY_TYPE": session.channel_type,
    }
    if ctx.web_socket_address:
        # Existing agents know only this one; one that needs a token has it set with its worker.
        environment.setdefault("BUB_BUS_URL", ctx.web_socket_address)
    return Launch(
        name=session.client_id,
        command=command,
        directory=Path(session.workspace),
        environment=environment,
        credentials=settings.credentials,
        memory_max_bytes=settings.memory_max_bytes,
        file_max_bytes=settings.file_max_bytes,
        cpu_percent=settings.cpu_percent,
        tasks_max=settings.tasks_max,
        restarts=settings.restarts,
        restart_seconds=settings.restart_seconds,
        stop_seconds=agents.stop_seconds,
    )


class Start:
    """A start that is under way: all who want the worker wait for this one."""

    def __init__(self) -> None:
        self.is_wanted = False  # somebody waits for it; else it is only watched
        self.was_queued = False  # others were started first
        self.scope = anyio.CancelScope()
        self._refusal: Refuse | None = None
        self._is_over = anyio.Event()

    async def call_off(self) -> None:
        """End it before there is a process."""
        self.scope.cancel()
        await self._is_over.wait()

    def settle(self, refusal: Refuse | None) -> None:
        self._refusal = refusal
        self._is_over.set()

    async def wait(self, seconds: float) -> None:
        """Wait for its end; raise Refuse saying why if the worker is not there then.

        One that is late only because others were started first is not refused: it goes on.
        """
        with anyio.move_on_after(seconds):
            await self._is_over.wait()
        if not self._is_over.is_set():
            if self.was_queued:
                return
            raise Refuse("the worker is still starting", retry_seconds=1)
        if self._refusal is not None:
            raise Refuse(self._refusal.reason, retry_seconds=self._refusal.retry_seconds)
