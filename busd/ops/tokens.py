"""Tokens: made here, kept as hashes in the state directory; the owner's own lies beside them."""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from busd.bus.authenticator import OWNER_TOKEN, TokenRecord, hash_token
from busd.errors import ConfigError, InvalidParams
from busd.wire.plain_file import read_plain_file, write_plain_file

OWNER = OWNER_TOKEN
TOKENS_FILE, _OWN_FILE = "tokens.json", "token"
_MAX_BYTES = 16 * 1024 * 1024
TOKEN_FILES = (_OWN_FILE, TOKENS_FILE)


class TokenStore:
    """The tokens of one bus; the file is rewritten as a whole, and never half."""

    def __init__(self, state: Path) -> None:
        self._path = state / TOKENS_FILE
        self._own_path = state / _OWN_FILE

    def load(self) -> list[TokenRecord]:
        """Read the tokens; makes the owner's if there is none yet."""
        return [self._load_own(), *self.read()]

    def new(self, name: str) -> str:
        """Create and return a token; it is never shown again."""
        records = self.read()
        if name == OWNER or any(record.name == name for record in records):
            raise InvalidParams(f"there is a token {name!r} already; revoke it first", name=name)
        if not name or not name.isprintable() or len(name) > 64:
            raise InvalidParams("a token's name has 1 to 64 printable characters", name=name[:64])
        token = f"busd_{secrets.token_urlsafe(32)}"
        self._write([*records, _record(name, token, datetime.now(UTC))])
        return token

    def revoke(self, name: str) -> None:
        """Remove a token; the owner's is created again by the next `load`."""
        if name == OWNER:
            self._own_path.unlink(missing_ok=True)
            return
        records = self.read()
        if not any(record.name == name for record in records):
            raise InvalidParams(f"there is no token {name!r}", name=name)
        self._write([record for record in records if record.name != name])

    def _load_own(self) -> TokenRecord:
        try:
            token = read_plain_file(self._own_path, _MAX_BYTES, follow_links=False).decode().strip()
        except FileNotFoundError:
            token = f"busd_{secrets.token_urlsafe(32)}"
            _write_private(self._own_path, token.encode() + b"\n")
        except OSError as problem:
            raise ConfigError(f"cannot read {self._own_path}: {problem.strerror}") from None
        except UnicodeDecodeError:
            token = ""
        if len(token) < 32:
            raise ConfigError(f"{self._own_path} holds no token; remove it to get a new one")
        check_private(self._own_path)
        made_at = datetime.fromtimestamp(self._own_path.lstat().st_mtime, UTC)
        return _record(OWNER, token, made_at)

    def read(self) -> list[TokenRecord]:
        """Return all tokens but the owner's; raise ConfigError for an unsafe file."""
        try:
            content = read_plain_file(self._path, _MAX_BYTES, follow_links=False)
            records = msgspec.json.decode(content, type=list[TokenRecord])
            check_private(self._path)
            return records
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise ConfigError(f"cannot read {self._path}: {problem.strerror}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise ConfigError(f"{self._path}: {problem}") from None

    def _write(self, records: list[TokenRecord]) -> None:
        _write_private(self._path, msgspec.json.format(msgspec.json.encode(records)))


def check_private(path: Path) -> None:
    """Raise ConfigError if others may know, or even choose, what is in a file of tokens."""
    facts = path.lstat()
    if facts.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{path} belongs to uid {facts.st_uid}; remove it to get a new one")
    if facts.st_mode & 0o077:
        mode = f"{facts.st_mode & 0o777:04o}"
        raise ConfigError(
            f"{path} is not for its owner alone (mode {mode}): chmod 0600 it, or remove it if"
            " others may have been there"
        )


def _record(name: str, token: str, made_at: datetime) -> TokenRecord:
    created_at = made_at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return TokenRecord(name, hash_token(token), created_at)


def _write_private(path: Path, content: bytes) -> None:
    try:
        write_plain_file(path, content, is_synced=True)
    except OSError as problem:
        raise ConfigError(f"cannot write {path}: {problem.strerror}") from None
