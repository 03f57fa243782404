"""Callers: who posts a message, proved by a signature or a bearer token.

A signature is that of Standard Webhooks: HMAC-SHA256 of `ID.TIMESTAMP.BODY`, in the headers
`webhook-id`, `webhook-timestamp` and `webhook-signature`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Callable, Mapping
from hashlib import sha256

from busd import ConfigError
from busd.bridge import read_secret
from busd_plugins.hook.errors import HookError

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_ENCODED = "whsec_"  # before a secret in base64
_MAX_SIGNATURES = 10
_MAX_ID_CHARACTERS = 200


class Caller:
    """A program that may post messages, and what it proves that by."""

    def __init__(self, name: str, secret: bytes, token: str) -> None:
        self.name = name
        self._secret = secret
        self._token = token.encode()

    def __repr__(self) -> str:
        return f"<Caller {self.name}>"

    @property
    def signing_key(self) -> bytes:
        """What callbacks to it are signed with: its secret, or else its token."""
        return self._secret or self._token

    def has_token(self, shown: str) -> bool:
        return bool(self._token) and hmac.compare_digest(self._token, shown.encode())

    def has_signed(self, signatures: str, content: bytes) -> bool:
        """Return whether one of the signatures, divided by spaces, is right."""
        if not self._secret:
            return False
        right = f"v1,{signature_of(self._secret, content)}".encode()
        shown = signatures.encode().split(b" ")[:_MAX_SIGNATURES]
        return any(hmac.compare_digest(right, each) for each in shown)


class Callers:
    """All callers; the constructor reads their secrets, and raises ConfigError."""

    def __init__(
        self,
        secrets: Mapping[str, str],
        tokens: Mapping[str, str],
        window_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._window_seconds = window_seconds
        self._clock = clock
        self._callers: dict[str, Caller] = {}
        for name in sorted({*secrets, *tokens}):
            secret = _read("secret", name, secrets)
            token = _read("token", name, tokens)
            self._callers[name] = Caller(name, _key_of(name, secret), token)

    def find(self, name: str) -> Caller:
        """Return the caller of a path; raise HookError."""
        caller = self._callers.get(name)
        if caller is None:
            raise HookError(404, "unknown_hook", f"there is no hook {name[:80]!r}")
        return caller

    def check_head(self, caller: Caller, headers: Mapping[str, str]) -> str:
        """Check what needs no body; return the id that was signed, or "" for the right token."""
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind:
            if kind.lower() == "bearer" and caller.has_token(value.strip()):
                return ""
            raise HookError(401, "bad_token", "the bearer token is not that of this hook")
        if SIGNATURE not in headers:
            words = f"sign the request ({ID}, {TIMESTAMP}, {SIGNATURE}) or show a bearer token"
            raise HookError(401, "not_authenticated", words)
        signed_id = headers.get(ID, "")
        if not 1 <= len(signed_id) <= _MAX_ID_CHARACTERS:
            raise HookError(401, "bad_signature", f"{ID} must have 1 to {_MAX_ID_CHARACTERS} bytes")
        self._check_age(headers.get(TIMESTAMP, ""))
        return signed_id

    def check_body(
        self, caller: Caller, headers: Mapping[str, str], signed_id: str, body: bytes
    ) -> None:
        """Check the signature, unless `check_head` has accepted a token; raise HookError."""
        if not signed_id:
            return
        content = content_of(signed_id, headers[TIMESTAMP], body)
        if not caller.has_signed(headers[SIGNATURE], content):
            words = "the signature is not that of this hook's secret for these headers and body"
            raise HookError(401, "bad_signature", words)

    def _check_age(self, timestamp: str) -> None:
        if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 15):
            words = f"{TIMESTAMP} must be the time in seconds since 1970"
            raise HookError(401, "bad_timestamp", words)
        seconds = abs(self._clock() - int(timestamp))
        if seconds > self._window_seconds:
            words = f"{TIMESTAMP} is {seconds:.0f} seconds off; sign it anew"
            raise HookError(401, "old_timestamp", words)


def content_of(message_id: str, timestamp: str, body: bytes) -> bytes:
    """Return what is signed."""
    return f"{message_id}.{timestamp}.".encode() + body


def signature_of(key: bytes, content: bytes) -> str:
    return base64.b64encode(hmac.digest(key, content, sha256)).decode()


def sign(key: bytes, message_id: str, body: bytes) -> dict[str, str]:
    """Return the headers that sign a callback."""
    timestamp = str(int(time.time()))
    signature = signature_of(key, content_of(message_id, timestamp, body))
    return {ID: message_id, TIMESTAMP: timestamp, SIGNATURE: f"v1,{signature}"}


def _read(kind: str, name: str, files: Mapping[str, str]) -> str:
    if name not in files:
        return ""
    return read_secret(f"bridges.hook.{kind}s.{name}", files[name]).value


def _key_of(name: str, secret: str) -> bytes:
    if not secret.startswith(_ENCODED):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except binascii.Error:
        words = f"bridges.hook.secrets.{name}: what follows {_ENCODED} is not base64"
        raise ConfigError(words) from None
