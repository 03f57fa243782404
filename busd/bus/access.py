"""Access: who may be whom, speak as whom, send and subscribe to what, and how much."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, ClassVar, Literal

import msgspec

from busd.bus.address import check_pattern, compile_glob, has_wildcard
from busd.errors import AuthenticationFailed, ConfigError, MalformedPattern
from busd.quantities import Count, Rate, Uid, about
from busd.wire.connection import FrameBytes

Policy = Literal["open", "strict"]
EVERYTHING = ("*",)
# Names of the bus itself, and beginnings of such: a grant gives one only by a pattern that begins
# with what stands here. `*` does not, and neither does `agent:*` give `agent:system`.
OWN_NAMES = ("agent:system", "system:", "plugin:")


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a uid, a systemd unit, a token or a certificate may do; a `[[grant]]` table."""

    reserved: ClassVar[tuple[str, ...]] = OWN_NAMES  # beginnings of names that `*` does not give

    name: Annotated[str, about("Name of the grant in rules and logs. Default: its number.")] = ""
    uid: Annotated[Uid | None, about("Applies to this user's processes on the Unix socket.")] = None
    unit: Annotated[str, about("Applies to this systemd unit's processes on the Unix socket.")] = ""
    token: Annotated[str, about("Applies to peers that present the token of this name.")] = ""
    certificate: Annotated[
        str, about("Applies to peers whose client certificate has this common name.")
    ] = ""
    client_ids: Annotated[tuple[str, ...], about("Names that the peer may take.")] = ("*",)
    speak_as: Annotated[
        tuple[str, ...], about("Senders that it may use besides its own name.")
    ] = ()
    send_to: Annotated[tuple[str, ...], about("Addresses that it may send to.")] = ("*",)
    subscribe: Annotated[tuple[str, ...], about("Patterns that it may subscribe to.")] = ("*",)
    messages_per_second: Annotated[
        Rate | None, about("Messages per second that it may send in the long run.")
    ] = None
    burst: Annotated[Count, about("Messages it may send at once before the rate applies.")] = 100
    max_frame_bytes: Annotated[
        FrameBytes | None, about("Largest frame, instead of `wire.max_frame_bytes`.")
    ] = None
    admin: Annotated[bool, about("May manage tokens and read the activity log.")] = False


class TokenGrant(Grant, frozen=True, kw_only=True):
    """What a token may do that no `[[grant]]` is for: be a peer, but not an agent of the bus."""

    reserved: ClassVar[tuple[str, ...]] = (*OWN_NAMES, "agent:")


class OpenGrant(Grant, frozen=True, kw_only=True):
    """What everybody may do in policy `open`, where anybody can speak as the bus itself anyway."""

    reserved: ClassVar[tuple[str, ...]] = ()


class Identity(msgspec.Struct, frozen=True):
    """Who a peer is, as far as it could be proven."""

    uid: int | None = None
    by: Literal["", "unix", "loopback"] = ""  # what the uid is known by
    pid: int | None = None
    unit: str = ""
    token: str = ""  # the token's name
    certificate: str = ""
    token_sha256: str = ""  # which token of that name: one made anew is another one
    socket: int | None = None  # the inode of its end of a loopback connection

    def __str__(self) -> str:
        facts = {
            "uid": self.uid,
            "unit": self.unit,
            "token": self.token,
            "certificate": self.certificate,
        }
        known = [f"{kind} {fact}" for kind, fact in facts.items() if fact not in (None, "")]
        return ", ".join(known) or "a stranger"

    @property
    def known_by(self) -> str:
        """What a peer is known by, for the operator."""
        way = {"unix": "Unix socket", "loopback": "loopback TCP", "": "?"}[self.by]
        facts = {
            f"uid {self.uid} ({way})": self.uid is not None,
            f"unit {self.unit}": bool(self.unit),
            f"token {self.token}": bool(self.token),
            f"certificate {self.certificate}": bool(self.certificate),
        }
        return ", ".join(fact for fact, is_known in facts.items() if is_known) or "nothing"

    def has(self, grant: Grant) -> bool:
        """True if every fact the grant names is true of this identity, and it names one."""
        wanted = (
            (grant.uid, self.uid),
            (grant.unit or None, self.unit),
            (grant.token or None, self.token),
            (grant.certificate or None, self.certificate),
        )
        named = [(fact, mine) for fact, mine in wanted if fact is not None]
        return bool(named) and all(fact == mine for fact, mine in named)


class Decision(msgspec.Struct, frozen=True):
    """Whether something is allowed, and which rule says so."""

    allowed: bool
    rule: str
    reason: str


class Rights:
    """All that the grants of one identity allow together."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self.grants = tuple(grants)
        self.is_admin = any(grant.admin for grant in self.grants)

    @property
    def names(self) -> str:
        return " ".join(grant.name for grant in self.grants)

    def may_be(self, client_id: str) -> Decision:
        def names_of(grant: Grant) -> tuple[str, ...]:
            return tuple(each for each in grant.client_ids if gives(each, client_id, grant))

        return self._decide("client_ids", client_id, names_of, matches)

    def hint_for(self, client_id: str) -> str:
        """Return how a name could be had that `*` does not give; "" for all other names."""
        reserved = {each for grant in self.grants for each in grant.reserved}
        if any(is_reserved(client_id, each) for each in reserved):
            return "; only a [[grant]] whose client_ids spell such a name gives it"
        return ""

    def may_speak_as(self, client_id: str, sender: str) -> Decision:
        if sender == client_id:
            return Decision(True, "own name", "a peer may speak as itself")
        return self._decide("speak_as", sender, lambda grant: grant.speak_as, matches)

    def may_send_to(self, address: str) -> Decision:
        return self._decide("send_to", address, lambda grant: grant.send_to, matches)

    def may_subscribe(self, pattern: str) -> Decision:
        return self._decide("subscribe", pattern, lambda grant: grant.subscribe, covers)

    def _decide(
        self,
        what: str,
        subject: str,
        patterns_of: Callable[[Grant], tuple[str, ...]],
        fits: Callable[[str, str], bool],
    ) -> Decision:
        for grant in self.grants:
            for pattern in patterns_of(grant):
                if fits(pattern, subject):
                    return Decision(True, f"grant.{grant.name}.{what}", f"{pattern} is granted")
        # Whoever has no grant at all is refused at the door; so this is the rule it meets there.
        rule = f"grant.{self.grants[0].name}.{what}" if self.grants else AuthenticationFailed.rule
        return Decision(False, rule, f"no {what} of {self.names or 'any grant'} matches {subject}")

    @property
    def speaks_as_anybody(self) -> bool:
        """True for whom a table of senders means nothing: it could take any of them."""
        return any("*" in grant.speak_as for grant in self.grants)

    @property
    def limits_messages(self) -> bool:
        """True if something must be looked at for every message."""
        allows_all = any("*" in grant.send_to for grant in self.grants)
        return not allows_all or self.rate is not None

    @property
    def rate(self) -> tuple[float, int] | None:
        """The most generous rate of the grants; None if one of them has no limit."""
        rates = [(grant.messages_per_second, grant.burst) for grant in self.grants]
        if not rates or any(rate is None for rate, _ in rates):
            return None
        return max((rate, burst) for rate, burst in rates if rate is not None)

    def max_frame_bytes(self, default: int) -> int:
        """The largest frame that one of the grants allows."""
        return max((grant.max_frame_bytes or default for grant in self.grants), default=default)


def matches(pattern: str, address: str) -> bool:
    """True if a granted pattern matches an address."""
    if pattern in ("*", address):
        return True
    return _compiled(pattern).fullmatch(address) is not None


def gives(pattern: str, name: str, grant: Grant) -> bool:
    """Return whether a pattern of a grant can give a name: a reserved one must be spelled."""
    return all(pattern.startswith(each) for each in grant.reserved if is_reserved(name, each))


def is_reserved(name: str, reserved: str) -> bool:
    return name == reserved or (reserved.endswith(":") and name.startswith(reserved))


def covers(granted: str, pattern: str) -> bool:
    """True if everything that `pattern` matches is matched by `granted`, too."""
    if granted in ("*", pattern):
        return True
    if not has_wildcard(pattern):
        return matches(granted, pattern)
    prefix = granted.removesuffix("*")
    is_prefix = prefix != granted and not has_wildcard(prefix)
    return is_prefix and pattern.startswith(prefix)


def check_grants(grants: list[Grant]) -> list[Grant]:
    """Return every grant a name; raise ConfigError for one that is for nobody."""
    named: list[Grant] = []
    for number, grant in enumerate(grants, 1):
        if grant.uid is None and not (grant.unit or grant.token or grant.certificate):
            raise ConfigError(
                f"grant {number} is for nobody: name a uid, unit, token or certificate"
            )
        for members in ("client_ids", "speak_as", "send_to", "subscribe"):
            for pattern in getattr(grant, members):
                _check_granted(pattern, f"grant {number}: {members}")
        named.append(msgspec.structs.replace(grant, name=grant.name or str(number)))
    return named


def _check_granted(pattern: str, where: str) -> None:
    """Raise ConfigError for what no address can match: a grant of nothing is a mistake."""
    try:
        check_pattern(pattern)
    except MalformedPattern as problem:
        raise ConfigError(f"{where}: {problem.message}") from None


_cache: dict[str, re.Pattern[str]] = {}


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the expression of a granted pattern; there are as many as the operator wrote."""
    if pattern not in _cache:
        _cache[pattern] = compile_glob(pattern)
    return _cache[pattern]
