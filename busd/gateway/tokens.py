"""The tokens of the gateway's users: a name and the hash of a token each, in its state folder.

They are not those of the bus: whoever may chat may not join the bus.
"""

from __future__ import annotations

import hmac
from pathlib import Path

from busd.bus.authenticator import TokenRecord, hash_token
from busd.errors import InvalidParams
from busd.ops.tokens import OWNER, TOKENS_FILE, TokenStore


class GatewayTokens:
    """The tokens of one gateway; changes of the file apply at the next look."""

    def __init__(self, folder: Path) -> None:
        self._store = TokenStore(folder)
        self._path = folder / TOKENS_FILE
        self._seen: tuple[int, int] | None = None  # inode and time of the file that was read
        self._names: dict[str, str] = {}  # by hash

    def find(self, token: str) -> str | None:
        """Return the name of a token's user, or None; raise ConfigError for an unsafe file."""
        self._refresh()
        wanted = hash_token(token)
        found = None
        for known, name in self._names.items():
            if hmac.compare_digest(known, wanted):
                found = name
        return found

    def _refresh(self) -> None:
        try:
            status = self._path.lstat()
            seen = (status.st_ino, status.st_mtime_ns)
        except OSError:
            seen = (0, 0)
        if seen != self._seen:
            self._names = {record.sha256: record.name for record in self.list()}
            self._seen = seen

    def list(self) -> list[TokenRecord]:
        """Return the names and hashes; raise ConfigError for an unsafe file."""
        return self._store.read()

    def new(self, name: str) -> str:
        """Create and return a token; it is never shown again. Raise InvalidParams for the name."""
        if name == OWNER:
            raise InvalidParams(f"{name!r} is the user who runs the gateway", name=name)
        return self._store.new(name)

    def revoke(self, name: str) -> None:
        """Forget a token; raise InvalidParams if there is none of that name."""
        self._store.revoke(name)
