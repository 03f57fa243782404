"""What a worker is started with: its command, its environment, its limits, its workspace."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from busd import AgentsSettings, WorkerSettings, worker_command
from busd.supervise import Launch, SupervisorSettings

if TYPE_CHECKING:
    from busd import Context
    from busd_plugins.bub.sessions import Session


def config_of(session: Session) -> dict[str, Any]:
    """Give what the config.json of its workspace says."""
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
    """Give what its spawner needs to know; raises ConfigError if a secret would be seen."""
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
