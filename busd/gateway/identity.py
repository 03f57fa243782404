"""Who a client is: the user of a token, or the owner of the gateway by a loopback connection.

A token is shown in `Authorization`, as `token` in the query, in the `auth` of Socket.IO, or through
a dialect (`Authenticate`). A token that is shown decides alone.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import structlog

from busd.bus.authenticator import hash_token
from busd.bus.bucket import Bucket
from busd.errors import ConfigError
from busd.gateway.origins import Headers, is_indirect, values_of
from busd.gateway.tokens import GatewayTokens
from busd.wire.loopback import loopback_owner

log = structlog.get_logger("busd.gateway")

OWNER = "owner"
_TOKEN_FIELD = "token"  # noqa: S105 - the name of a member
_FAILURES_PER_SECOND = 1.0
_FAILURES_AT_ONCE = 20
_MAX_QUERY_FIELDS = 100
_HOW_TO = "show it as `Authorization: Bearer TOKEN`, or as `token` in the query"


class Identity(msgspec.Struct, frozen=True):
    """What is known about a client."""

    user: str = ""  # "": a stranger
    is_owner: bool = False
    uid: int | None = None  # of the process at the other end, if that is the client
    token_sha256: str = ""  # of the token that was shown

    def may_continue(self, begun: Identity) -> bool:
        """Return whether it may go on with what `begun` has begun, and whose secret id it knows."""
        is_same_user = not self.token_sha256 or self.user == begun.user
        return is_same_user and (self.uid is None or begun.uid is None or self.uid == begun.uid)


STRANGER = Identity()


class Denied(Exception):
    """A request is refused: an HTTP status, and a text for the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Remote:
    """The other end of a TCP connection. The kernel is asked for its owner when that matters."""

    __slots__ = ("_is_asked", "_transport", "_uid")

    def __init__(self, transport: Any) -> None:  # asyncio's and uvloop's have no type in common
        self._transport = transport
        self._is_asked = False
        self._uid: int | None = None

    @property
    def uid(self) -> int | None:
        if not self._is_asked:
            self._is_asked = True
            owner = loopback_owner(self._transport.get_extra_info("socket"))
            self._uid = None if owner is None else owner.uid
        return self._uid


class Identities:
    """Finds out who the clients are."""

    def __init__(
        self,
        tokens: GatewayTokens,
        *,
        identify_loopback: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._identify_loopback = identify_loopback
        self._owner_uids = {0, os.geteuid()}
        self._failures = Bucket(_FAILURES_PER_SECOND, _FAILURES_AT_ONCE, clock)

    def of_request(self, headers: Headers, query: dict[str, str], remote: Remote) -> Identity:
        """Return who sends a request; remove the token from `query`. Raise Denied."""
        shown = _token_of(headers)
        in_query = query.pop(_TOKEN_FIELD, "")
        if shown and in_query and shown != in_query:
            raise Denied(400, "Two tokens, in Authorization and in the query.\n")
        uid = None if is_indirect(headers) or not self._identify_loopback else remote.uid
        if token := shown or in_query:
            return msgspec.structs.replace(self.of_token(token), uid=uid)
        if uid in self._owner_uids:
            return Identity(OWNER, is_owner=True, uid=uid)
        return Identity(uid=uid)

    def of_token(self, token: str) -> Identity:
        """Return whose token it is; raise Denied."""
        try:
            user = self._tokens.find(token)
        except ConfigError as problem:
            log.error("tokens.refused", reason=str(problem))
            raise Denied(503, "Tokens cannot be checked now; see the gateway's log.\n") from None
        if user:
            return Identity(user, token_sha256=hash_token(token))
        if self._failures.take() > 0:
            raise Denied(429, "Too many failed logins; try again later.\n")
        log.warning("client.refused", reason="unknown token")
        raise Denied(401, "This token is not valid here, or was revoked.\n")

    def valid_tokens(self) -> set[str] | None:
        """Return the hashes of all tokens; None if they cannot be read."""
        try:
            return {record.sha256 for record in self._tokens.list()}
        except ConfigError as problem:
            log.error("tokens.refused", reason=str(problem))
            return None


def read_query(text: bytes) -> dict[str, str]:
    """Return the members of a query, the last one of each name; raise Denied."""
    try:
        pairs = parse_qsl(
            text.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS
        )
    except ValueError:
        raise Denied(400, f"More than {_MAX_QUERY_FIELDS} members in the query.\n") from None
    if sum(name == _TOKEN_FIELD for name, _ in pairs) > 1:
        raise Denied(400, "More than one token in the query.\n")
    return dict(pairs)


def _token_of(headers: Headers) -> str:
    """Return the token of the Authorization header: Bearer, or the password of Basic."""
    found = values_of(headers, b"authorization")
    if not found:
        return ""
    if len(found) > 1:
        raise Denied(400, "More than one Authorization header.\n")
    kind, _, value = found[0].partition(" ")
    token = value.strip() if kind.lower() == "bearer" else ""
    if kind.lower() == "basic":
        try:
            token = base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:  # no base64, or no UTF-8
            token = ""
    if not token:
        raise Denied(400, f"No token in the Authorization header; {_HOW_TO}.\n")
    return token
