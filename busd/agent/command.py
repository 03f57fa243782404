"""The command line of a worker: what the spawners start for a chat."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from busd.agent.settings import WorkerSettings
from busd.errors import ConfigError

_ON_STDIN = "stdin"
_SECRET_NAMES = {"key", "api_key", "api-key", "apikey", "token", "access_token", "password"}


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
        check_no_secret(settings.openai_url)
        if not settings.model:
            raise ConfigError("workers: an openai_url needs a model")
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


def check_no_secret(url: str) -> None:
    """Raise ConfigError if everybody who can list processes would learn a secret from this URL."""
    try:
        parts = urlsplit(url)
        names = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        has_secret = parts.password is not None or parts.username is not None
    except ValueError as problem:
        raise ConfigError(f"the endpoint's URL cannot be read: {problem}") from None
    if has_secret or names & _SECRET_NAMES:
        raise ConfigError(
            "the endpoint's URL holds a secret; put it into a credential named OPENAI_API_KEY"
        )
