"""The guard of a peer whose messages must be looked at one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from busd.bus.access import Decision, Identity, Rights
from busd.bus.bucket import Bucket
from busd.bus.message import Message
from busd.errors import AccessRefused, InvalidParams, RateLimited
from busd.rpc.reading import reader_of

if TYPE_CHECKING:
    from busd.bus.peer import RemotePeer

_MAX_REMEMBERED = 1_024


class _Head(msgspec.Struct):
    """The two members of a payload that say what it is and whose words it has."""

    type: str = ""
    author: str = msgspec.field(name="from", default="")


_decode_head = reader_of(_Head).decode


class TypeChecks:
    """Who may send which type of message: asked of plugins, because the bus knows no types."""

    def __init__(self) -> None:
        self.by_plugin: dict[str, Callable[[str, str], str | None]] = {}
        self.speakers_by_plugin: dict[str, Callable[[str, str, Raw], list[str]]] = {}

    def speakers_of(self, sender: str, type_name: str, payload: Raw) -> list[str]:
        """Return the addresses in whose name a message is taken, by what its content says."""
        found: list[str] = []
        for speakers in self.speakers_by_plugin.values():
            found += speakers(sender, type_name, payload)
        return found

    def __bool__(self) -> bool:
        return bool(self.by_plugin)

    def decide_for(self, name: str, sender: str, type_name: str) -> Decision:
        """Decide for a peer called `name` that speaks as `sender`, which its grants allow.

        The peer's own name counts. Another sender counts beside it only if it is the address of a
        party of its own (`tg:1`, `agent:x`): existing clients fill `from` with a made-up name,
        which says nothing about them.
        """
        decision = self.decide(name, type_name)
        if decision.allowed or sender == name or ":" not in sender:
            return decision
        return self.decide(sender, type_name)

    def decide(self, sender: str, type_name: str) -> Decision:
        """Return whether `sender` may send this type; each plugin may give a reason why not."""
        for plugin, check in self.by_plugin.items():
            if (reason := check(sender, type_name)) is not None:
                return Decision(False, f"type.{plugin}", reason)
        return Decision(True, "type", f"nobody minds {type_name or 'no type'} from {sender}")


class NameChecks:
    """Who may take which name, besides what is granted: asked of plugins, whatever the policy."""

    def __init__(self) -> None:
        self.by_plugin: dict[str, Callable[[str, Identity], str | None]] = {}

    def decide(self, name: str, identity: Identity) -> Decision:
        """Return whether a newcomer may take a name; each plugin may give a reason why not."""
        for plugin, check in self.by_plugin.items():
            if (reason := check(name, identity)) is not None:
                return Decision(False, f"name.{plugin}", reason)
        return Decision(True, "name", f"nobody minds {name}")


class Guard:
    """Checks the rate, the address, the author and the type of every message; most peers have none.

    Only the payloads of peers that may not speak as anybody are read: whoever gets a message
    relies on the `from` in its payload as on the one beside it.
    """

    __slots__ = ("_allowed", "_bucket", "_reads_payloads", "_rights", "_types")

    def __init__(self, rights: Rights, clock: Callable[[], float], types: TypeChecks) -> None:
        self._rights = rights
        self._types = types
        self._reads_payloads = not rights.speaks_as_anybody
        self._allowed: set[str] = set()
        rate = rights.rate
        self._bucket = Bucket(*rate, clock) if rate is not None else None

    def check(self, message: Message, peer: RemotePeer) -> None:
        """Raise if this message is one too many, or may not go there, or is not its to send."""
        if self._bucket is not None and (wait := self._bucket.take()) > 0:
            rule = f"grant.{self._rights.grants[0].name}.messages_per_second"
            raise RateLimited("too many messages", rule=rule, retrySeconds=round(wait, 3))
        if message.to not in self._allowed:
            self._check_address(message, peer)
        if self._reads_payloads:
            head = _read_head(message.payload)
            if head.author:
                peer.check_speaks_as(head.author, "payload.from: ")
            for address in self._types.speakers_of(str(message.sender), head.type, message.payload):
                peer.check_speaks_as(address, "payload.content: ")
            if self._types:
                self._check_type(head.type, message, peer)

    def _check_address(self, message: Message, peer: RemotePeer) -> None:
        decision = self._rights.may_send_to(message.to)
        if not decision.allowed:
            peer.bus.log_refusal("message.refused", peer.name, decision.rule, to=message.to)
            raise AccessRefused(decision.reason, rule=decision.rule, to=message.to)
        if len(self._allowed) >= _MAX_REMEMBERED:
            self._allowed.clear()
        self._allowed.add(message.to)

    def _check_type(self, type_name: str, message: Message, peer: RemotePeer) -> None:
        sender = str(message.sender)
        decision = self._types.decide_for(peer.name, sender, type_name)
        if not decision.allowed:
            peer.bus.log_refusal("message.refused", peer.name, decision.rule, sender=sender)
            raise AccessRefused(decision.reason, rule=decision.rule, sender=sender)


def _read_head(payload: Raw) -> _Head:
    """Return the head of a payload; one that cannot be read could be anything."""
    try:
        return _decode_head(payload)
    except (msgspec.MsgspecError, RecursionError):
        reason = "sendMessage: type and from in the payload must be strings"
        raise InvalidParams(reason, member="payload") from None
