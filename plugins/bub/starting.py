"""What a worker is started with: its workspace, its command line, and its limits.

A workspace is the folder in which the agent of one chat works:

    telegram-123456789/  config.json  data/  logs/

The name is the channel and the chat id. It has no `:`, which `venv` and `PATH` refuse. Any chat id
gives a direct child of the workspaces folder: other characters become %XX, and a long name is
truncated and ends in its SHA-256. The first `-` ends the channel, so two chats never share a name.
"""

from __future__ import annotations

import shutil
import string
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from busd.supervise import (
    Launch,
    SupervisorSettings,
    make_folder,
    open_folder,
    replace_file,
)
from busd_plugins.bub.chats import Chat
from busd_plugins.bub.settings import AgentsSettings, WorkerSettings, check_endpoint

if TYPE_CHECKING:
    from busd import Context
    from busd_plugins.bub.sessions import Session

FOLDER = "workspaces"
_PLAIN = frozenset((string.ascii_letters + string.digits + "-_.@+=,").encode())
_MAX_NAME_BYTES = 200  # 255 are the most a file system takes
_KEPT_BYTES = 100  # of a name that is cut
_ON_STDIN = "stdin"


# The workspace


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


def folder_name(chat: Chat) -> str:
    """Return the name of a chat's folder: readable, and different for every chat."""
    channel = _safe(chat.channel).replace("-", "%2D")
    name = f"{channel}-{_safe(chat.chat_id)}"
    if len(name) <= _MAX_NAME_BYTES:
        return name
    # `~` is never in a name that was not cut.
    return f"{name[:_KEPT_BYTES]}~{sha256(name.encode()).hexdigest()}"


def _safe(text: str) -> str:
    # JSON cannot bring a lone surrogate in, Python's own callers can: it is bytes like the rest.
    encoded = text.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in encoded)


def make_workspace(state: Path, chat: Chat, config: dict[str, Any], recorded: str = "") -> Path:
    """Return the folder of a chat, created if it is missing; raise OSError and leave no half.

    A session that has a `recorded` workspace keeps its folder, whatever its name is. A link in the
    place of a folder is not followed.
    """
    name = Path(recorded).name or folder_name(chat)
    text = msgspec.json.format(msgspec.json.encode(config)) + b"\n"
    make_folder(state / FOLDER)
    with open_folder(state / FOLDER) as workspaces:
        is_new = make_folder(name, workspaces)
        try:
            with open_folder(name, workspaces) as workspace:
                for each in ("data", "logs"):
                    make_folder(each, workspace)
                    with open_folder(each, workspace):
                        pass  # a link would raise
                replace_file("config.json", workspace, text)
        except OSError:
            if is_new:
                shutil.rmtree(state / FOLDER / name, ignore_errors=True)
            raise
    return state / FOLDER / name


def put_aside(state: Path, workspace: Path) -> Path | None:
    """Move a chat's folder aside; return None if it is not ours or cannot be moved.

    Only direct children of the workspaces folder are ever moved. `.` begins no chat's folder.
    """
    if workspace.parent != state / FOLDER or not workspace.name:
        return None
    aside = workspace.parent / f".removed-{uuid4().hex}"
    try:
        workspace.rename(aside)
    except OSError:
        return None
    return aside


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it; links are not followed."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(state: Path) -> None:
    """Remove what an earlier bus put aside and had no time to remove."""
    if (state / FOLDER).is_symlink():
        return
    for folder in (state / FOLDER).glob(".removed-*"):
        remove_folder(folder)


# The command line


def worker_command(
    settings: WorkerSettings,
    client_id: str,
    talkto: str,
    workspace: Path | str,
    reply_type: str,
) -> list[str]:
    """Return the words that start a worker; raise ConfigError if a secret would be one of them."""
    who = ["--client-id", client_id, "--talkto", talkto]
    who += ["--workspace", str(workspace), "--reply-type", reply_type]
    if settings.agent:
        return [*settings.agent, *who]
    words = [sys.executable, "-m", "busd", "worker", *who]
    words += ["--when-busy", settings.when_busy, "--seconds", f"{settings.turn_seconds:g}"]
    if settings.stream:
        words.append("--stream")
    return [*words, *_program(settings)]


def _program(settings: WorkerSettings) -> list[str]:
    """Return the flags that say who answers."""
    if settings.command:
        return [*_way_of_speaking(settings), "--exec", "--", *settings.command]
    if settings.openai_url:
        check_endpoint(settings)
        return ["--openai", settings.openai_url, "--model", settings.model]
    return ["--echo"]


def _way_of_speaking(settings: WorkerSettings) -> list[str]:
    if settings.persistent == "no":
        return [] if settings.pass_text == _ON_STDIN else ["--arg"]
    words = ["--persistent", settings.persistent]
    if settings.prompt:
        words.append(f"--prompt={settings.prompt}")
    if settings.until:
        words.append(f"--until={settings.until}")
    return words


# The launch


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
