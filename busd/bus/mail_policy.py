"""Which addresses keep mail, for how long, and how often a delivery is tried again."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from math import inf
from typing import Annotated, Any

import msgspec
from msgspec import UNSET
from ulid import ULID

from busd.bus.address import check_pattern, compile_glob, has_wildcard
from busd.bus.known import KnownAddresses
from busd.bus.mail import Mail, MailLimits
from busd.bus.message import Message
from busd.errors import ConfigError, InvalidParams, RequestError
from busd.quantities import Count, Seconds, about

_DAY = 86_400.0
_JITTER = 0.25
# A process that a plugin starts again and again shall not die of the same message for ever.
_MAX_LOSSES = 2


class MailSettings(MailLimits, frozen=True, forbid_unknown_fields=True):
    """What is kept for whom, how long, and how often it is tried."""

    keep: Annotated[
        list[str],
        about("Patterns of addresses whose messages are always kept while nobody is here."),
    ] = msgspec.field(default_factory=list)
    discard: Annotated[
        list[str], about("Patterns of addresses that keep only messages sent as durable.")
    ] = msgspec.field(default_factory=lambda: ["cli:*", "events:*", "system:*", "plugin:*"])
    known_seconds: Annotated[
        Seconds, about("Time for which an address keeps mail after a peer answered for it last.")
    ] = 7 * _DAY
    ttl_seconds: Annotated[
        Seconds, about("Time after which a kept message expires, unless its sender sets another.")
    ] = 7 * _DAY
    max_ttl_seconds: Annotated[Seconds, about("Longest time that a sender may set.")] = 30 * _DAY
    max_attempts: Annotated[
        Count, about("Attempts to deliver a kept message before it becomes a dead letter.")
    ] = 20
    ack_seconds: Annotated[
        Seconds,
        about("Time a connected peer has to answer a kept message before it is handed over again."),
    ] = 900.0
    first_retry_seconds: Annotated[
        Seconds,
        about("Pause before the second attempt, if the addressee sets none; then it doubles."),
    ] = 1.0
    max_retry_seconds: Annotated[Seconds, about("Longest pause between two attempts.")] = 300.0


class MailPolicy:
    """The settings, ready to be asked."""

    def __init__(self, settings: MailSettings, known: KnownAddresses) -> None:
        self._known = known
        # Plugins that answer for addresses whose peers they start, by the plugin's name.
        self.claims_by_plugin: dict[str, Callable[[str], bool]] = {}
        self.change(settings)

    def change(self, settings: MailSettings) -> None:
        self._settings = settings
        self._keep = matcher(settings.keep)
        self._discard = matcher(settings.discard)

    def keeps(self, address: str) -> bool:
        """Return whether messages to an address are kept while nobody answers for it."""
        if self.is_claimed(address):
            return True
        if self._keep(address):
            return True
        return not self._discard(address) and address in self._known

    def is_claimed(self, address: str) -> bool:
        """Return whether a plugin starts whoever answers for an address."""
        return any(claims(address) for claims in self.claims_by_plugin.values())

    def is_expected(self, address: str) -> bool:
        """Return whether somebody who may be away answers for an address first-hand."""
        return self.is_claimed(address) or self._known.is_expected(address)

    def max_losses(self, address: str) -> float:
        """Return how many peers in a row may leave over a message before it is given up."""
        return _MAX_LOSSES if self.is_claimed(address) else inf

    def may_know(self, pattern: str) -> bool:
        """Return whether it is worth knowing that somebody answers for a pattern."""
        return not self._discard(pattern)

    def retry_seconds(self, attempts: int) -> float:
        """Return the pause after so many attempts: it doubles, and is random by a quarter."""
        settings = self._settings
        seconds = settings.first_retry_seconds * 2.0 ** min(attempts - 1, 40)
        longest = min(seconds, settings.max_retry_seconds)
        return longest * random.uniform(1 - _JITTER, 1)  # noqa: S311 - not a secret


def keep_store_limits(old: MailSettings, new: MailSettings) -> MailSettings:
    """Return new settings with the limits that the store was opened with."""
    fixed = {name: getattr(old, name) for name in MailLimits.__struct_fields__}
    return msgspec.structs.replace(new, **fixed)


def check_mail_settings(settings: MailSettings) -> None:
    """Raise ConfigError for patterns that cannot match."""
    for name, patterns in (("keep", settings.keep), ("discard", settings.discard)):
        for pattern in patterns:
            try:
                check_pattern(pattern)
            except RequestError as fault:
                raise ConfigError(f"mail.{name}: {fault.message}") from None


def matcher(patterns: list[str]) -> Callable[[str], bool]:
    """Return a function that tells whether one of the patterns matches an address."""
    expressions = [
        compile_glob(pattern) if has_wildcard(pattern) else re.compile(re.escape(pattern))
        for pattern in patterns
    ]
    return lambda address: any(each.fullmatch(address) for each in expressions)


def mail_of(message: Message, account: str, settings: MailSettings, now: float) -> Mail:
    """Return a message as it is kept; raise InvalidParams for a time that is too long."""
    options = message.delivery
    seconds, key = min(settings.ttl_seconds, settings.max_ttl_seconds), ""
    message_id: Any = message.message_id
    has_id = bool(message_id) or message_id == 0
    if options is not UNSET:
        if options.ttl_seconds is not UNSET:
            seconds = options.ttl_seconds
            if seconds > settings.max_ttl_seconds:
                limit = settings.max_ttl_seconds
                reason = f"sendMessage: delivery.ttlSeconds is at most {limit:.0f}"
                raise InvalidParams(reason, member="delivery.ttlSeconds", limit=limit)
        if options.idempotency_key is not UNSET:
            key = f"key:{options.idempotency_key}"
        elif options.durable and has_id:
            key = f"id:{message_id}"
    sender: Any = message.sender  # set by now
    return Mail(
        sender=sender,
        address=message.to,
        message_id=message_id if has_id else f"msg_{ULID()}",
        payload=bytes(message.payload),
        kept_at=now,
        expires_at=now + seconds,
        account=account,
        idempotency_key=key,
    )
