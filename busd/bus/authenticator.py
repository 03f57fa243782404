"""The authenticator: find out who a peer is and what it may do, before it joins."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterable

import msgspec
import structlog

from busd.bus.access import EVERYTHING, Grant, Identity, OpenGrant, Policy, Rights, TokenGrant
from busd.bus.bucket import Bucket
from busd.errors import AuthenticationFailed, TooManyFailures
from busd.wire.credentials import Credentials, without_loopback

log = structlog.get_logger("busd.bus")

OWNER_TOKEN = "owner"  # noqa: S105 - the name of the token that lies beside the state of the bus
_FAILURES_PER_SECOND = 1.0
_FAILURES_AT_ONCE = 20


class TokenRecord(msgspec.Struct, frozen=True):
    """A token as it is kept: its hash, never itself."""

    name: str
    sha256: str
    created_at: str


def hash_token(token: str) -> str:
    """Return what is kept of a token. It has 256 random bits: a plain hash is enough."""
    # A header is bytes: what is no UTF-8 in it arrives as lone surrogates.
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


class Authenticator:
    """The policy, the grants and the tokens of one bus."""

    def __init__(
        self,
        policy: Policy = "open",
        grants: Iterable[Grant] = (),
        tokens: Iterable[TokenRecord] = (),
        owner_uids: Iterable[int] = (),
        clock: Callable[[], float] = time.monotonic,
        *,
        identify_loopback: bool = True,
    ) -> None:
        self.policy: Policy = policy
        self.tokens: dict[str, TokenRecord] = {record.name: record for record in tokens}
        self._grants = [*_owner_grants(owner_uids), *grants]
        self._identify_loopback = identify_loopback
        self._failures = Bucket(_FAILURES_PER_SECOND, _FAILURES_AT_ONCE, clock)

    def admit(self, credentials: Credentials, token: str) -> tuple[Identity, Rights]:
        """Return a peer's identity and rights; raise AuthenticationFailed if it has none.

        Over loopback TCP a peer that shows a token or a certificate is known by that alone, so that
        one with few rights keeps its limits whoever uses it.
        """
        shown = token or credentials.token
        if shown or credentials.certificate:
            credentials = without_loopback(credentials)
        record = self._find(shown)
        identity = Identity(
            credentials.uid,
            credentials.by,
            credentials.pid,
            credentials.unit,
            record.name if record else "",
            credentials.certificate,
            record.sha256 if record else "",
            credentials.socket,
        )
        identity = self._believed(identity)
        rights = self.rights_of(identity)
        if not rights.grants:
            self._refuse(identity, has_token=bool(shown))
        return identity, rights

    def identify(self, credentials: Credentials) -> Identity:
        """Return what is known of a connection before it says anything."""
        uid, by, certificate = credentials.uid, credentials.by, credentials.certificate
        return self._believed(Identity(uid, by, certificate=certificate))

    def rights_of(self, identity: Identity) -> Rights:
        """Return everything that an identity may do."""
        if self.policy == "open":
            return Rights([_EVERYTHING_BY_POLICY])
        identity = self._believed(identity)
        if identity.token not in self.tokens:
            identity = msgspec.structs.replace(identity, token="")
        grants = [grant for grant in self._grants if identity.has(grant)]
        if identity.token and not any(grant.token for grant in grants):
            grants.append(TokenGrant(name=f"token {identity.token}", token=identity.token))
        return Rights(grants)

    def _believed(self, identity: Identity) -> Identity:
        """Return an identity without what the settings say not to rely on."""
        if identity.by == "loopback" and not self._identify_loopback:
            return msgspec.structs.replace(identity, uid=None, by="")
        return identity

    def is_revoked(self, identity: Identity) -> bool:
        """True if an identity came with a token that is no longer ours."""
        record = self.tokens.get(identity.token)
        return bool(identity.token) and (record is None or record.sha256 != identity.token_sha256)

    def _find(self, token: str) -> TokenRecord | None:
        """Return what is kept of a token, or None if it is none of ours; in constant time."""
        if not token:
            return None
        digest = hash_token(token).encode()
        found = None
        for record in self.tokens.values():
            if hmac.compare_digest(record.sha256.encode(), digest):
                found = record
        return found

    def _refuse(self, identity: Identity, *, has_token: bool) -> None:
        """Raise what a stranger hears; too many of them are not even told why."""
        if (wait := self._failures.take()) > 0:
            raise TooManyFailures("too many failed logins", retrySeconds=round(wait, 1))
        if has_token:
            reason = "this token is not valid here"
        elif identity.uid is not None:
            reason = f"there is no grant for uid {identity.uid}"
        else:
            reason = "a token is needed here (auth.token, or Authorization: Bearer)"
        log.warning("peer.refused", identity=str(identity), reason=reason)
        raise AuthenticationFailed(reason)


def _owner_grants(uids: Iterable[int]) -> list[Grant]:
    """Return the grants that nobody has to write: whoever runs the bus may do everything."""
    own = Grant(name="owner", token=OWNER_TOKEN, speak_as=EVERYTHING, admin=True)
    return [own, *(msgspec.structs.replace(own, token="", uid=uid) for uid in set(uids))]


_EVERYTHING_BY_POLICY = OpenGrant(name="policy.open", speak_as=EVERYTHING, admin=True)
