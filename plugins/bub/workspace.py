"""Workspaces: one folder per chat, in which its agent works.

    telegram-123456789/  config.json  data/  logs/

The name is the channel and the chat id. It has no `:`, which `venv` and `PATH` refuse. Any chat id
gives a direct child of the workspaces folder: other characters become %XX, and a long name is
truncated and ends in its SHA-256. The first `-` ends the channel, so two chats never share a name.
"""

from __future__ import annotations

import shutil
import string
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from busd.supervise import make_folder, open_folder, replace_file
from busd_plugins.bub.chats import Chat

FOLDER = "workspaces"
_PLAIN = frozenset((string.ascii_letters + string.digits + "-_.@+=,").encode())
_MAX_NAME_BYTES = 200  # 255 are the most a file system takes
_KEPT_BYTES = 100  # of a name that is cut


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
