"""The command line of a worker: what the spawners start for a chat."""

from __future__ import annotations

import sys
from pathlib import Path

from busd_plugins.bub.settings import WorkerSettings, check_endpoint

_ON_STDIN = "stdin"


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
