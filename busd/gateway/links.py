"""Links to files that expire: the gateway redirects to the file, as long as the link is valid.

A link is `/files/TICKET`, and the ticket consists of the time when it expires, the URL, and a
signature of both. Nothing of it is stored: the key of the signatures is a file of the state folder.
"""

from __future__ import annotations

import base64
import errno
import hmac
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

from busd.errors import BusdError, ConfigError
from busd.ops.tokens import check_private
from busd.wire.plain_file import read_plain_file, write_plain_file

LINKS_PATH = "/files"
KEY_FILE = "link_key"
_KEY_BYTES = 32
_SIGNATURE_BYTES = 20
_TIME_BYTES = 6
_MAX_URL_BYTES = 4_096  # a request with its ticket has to fit into the limit of a request's head
# What a URL may contain unquoted: all that has a meaning in one, and % of what is quoted already.
_SAFE = "!#$%&'()*+,/:;=?@[]~"


class BadTicket(Exception):
    """The ticket is not ours."""


class Expired(Exception):
    """The ticket was valid once."""


class Links:
    """Signs links and checks them."""

    def __init__(self, key: bytes, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._seconds = seconds
        self._clock = clock

    def sign(self, url: str) -> str:
        """Return the path of a link to a URL; "" if that is no http(s) URL."""
        plain = _plain_url(url)
        if not plain:
            return ""
        # Rounded up, so that a link is never valid for a shorter time than was said.
        expires_at = int(self._clock() + self._seconds) + 1
        content = expires_at.to_bytes(_TIME_BYTES) + plain
        return f"{LINKS_PATH}/{_encode(self._signature(content) + content)}"

    def open(self, ticket: str) -> str:
        """Return the URL of a ticket; raise BadTicket or Expired."""
        try:
            padded = ticket.encode("ascii") + b"=" * (-len(ticket) % 4)
            signed = base64.b64decode(padded, altchars=b"-_", validate=True)
        except ValueError:
            raise BadTicket from None
        if _encode(signed) != ticket:  # base64 can spell the same bytes in several ways
            raise BadTicket
        signature, content = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(content)):
            raise BadTicket
        if int.from_bytes(content[:_TIME_BYTES]) <= self._clock():
            raise Expired
        return content[_TIME_BYTES:].decode()

    def _signature(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")[:_SIGNATURE_BYTES]


def _encode(signed: bytes) -> str:
    return base64.urlsafe_b64encode(signed).decode().rstrip("=")


def _plain_url(url: str) -> bytes:
    """Return an http(s) URL in ASCII, without what could end a header; b"" if it is none."""
    try:
        plain = quote(url.strip(), safe=_SAFE, errors="strict")
        parts = urlsplit(plain)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # half a surrogate pair or IPv6 address, or the port is no number
        return b""
    return plain.encode() if is_web and len(plain) <= _MAX_URL_BYTES else b""


def load_key(folder: Path) -> bytes:
    """Return the key of a state folder; make one if there is none.

    Raise ConfigError, or BusdError if the disk is full.
    """
    path = folder / KEY_FILE
    try:
        key = read_plain_file(path, _KEY_BYTES, follow_links=False)
    except FileNotFoundError:
        key = secrets.token_bytes(_KEY_BYTES)
        _write(path, key)
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}") from None
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{path} holds no key; remove it to get a new one")
    check_private(path)
    return key


def _write(path: Path, key: bytes) -> None:
    try:
        write_plain_file(path, key, is_synced=True)
    except OSError as problem:
        # A full disk is no mistake in the settings: the service manager shall try again.
        kind = BusdError if problem.errno == errno.ENOSPC else ConfigError
        raise kind(f"cannot write {path}: {problem.strerror}") from None
