"""Who an agent is: as its command line says, else its environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from busd.errors import ConfigError

SYSTEM = "agent:system"  # starts the agents of chats, and owns their settings
_FLAGS = {
    "--client-id": "BUSD_CLIENT_ID",
    "--talkto": "BUSD_TALKTO",
    "--workspace": "BUSD_WORKSPACE",
    "--reply-type": "BUSD_REPLY_TYPE",
}


class WorkerIdentity(NamedTuple):
    """What a spawner says to the worker that it starts; "" where it said nothing."""

    client_id: str
    talkto: str
    workspace: str
    reply_type: str


def read_identity(arguments: Sequence[str]) -> WorkerIdentity:
    """Read the four flags wherever they stand; all other arguments are the program's own.

    Raise ConfigError for a flag without a value.
    """
    said: dict[str, str] = {}
    for word, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, is_joined, value = word.partition("=")
        if flag in _FLAGS:
            said[flag] = value if is_joined else following
            if not is_joined and (not following or following.partition("=")[0] in _FLAGS):
                raise ConfigError(f"{flag} needs a value")
    return WorkerIdentity(
        *(said.get(flag) or os.environ.get(name, "") for flag, name in _FLAGS.items())
    )


def default_client_id() -> str:
    """Return the name of a worker that somebody started by hand."""
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid())
    plain = "".join(c for c in user if c.isprintable() and c not in " *?")
    return f"agent:{plain[:200] or os.getuid()}-worker"
