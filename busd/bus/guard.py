"""The guard of a peer whose messages must be looked at one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Raw

from busd.bus.access import Decision, Identity, Rights
from busd.bus.bucket import Bucket
from busd.bus.message import Message
from busd.errors import AccessRefused, RateLimited

if TYPE_CHECKING:
    from busd.bus.peer import RemotePeer

_MAX_REMEMBERED = 1_024


class TypeChecks:
    """Who may send which type of message: asked of plugins, because the bus knows no types."""

    def __init__(self) -> None:
        self.by_plugin: dict[str, Callable[[str, str], str | None]] = {}
        self.type_of: Callable[[Raw], str] = lambda payload: ""

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
        """Say whether `sender` may send this type; each plugin may give a reason why not."""
        for plugin, check in self.by_plugin.items():
            if (reason := check(sender, type_name)) is not None:
                return Decision(False, f"type.{plugin}", reason)
        return Decision(True, "type", f"nobody minds {type_name or 'no type'} from {sender}")


class NameChecks:
    """Who may take which name, besides what is granted: asked of plugins, whatever the policy."""

    def __init__(self) -> None:
        self.by_plugin: dict[str, Callable[[str, Identity], str | None]] = {}

    def decide(self, name: str, identity: Identity) -> Decision:
        """Say whether a newcomer may take a name; each plugin may give a reason why not."""
        for plugin, check in self.by_plugin.items():
            if (reason := check(name, identity)) is not None:
                return Decision(False, f"name.{plugin}", reason)
        return Decision(True, "name", f"nobody minds {name}")


class Guard:
    """Checks the address, the rate and the type of every message; most peers have none."""

    __slots__ = ("_allowed", "_bucket", "_rights", "_types")

    def __init__(
        self, rights: Rights, clock: Callable[[], float], types: TypeChecks | None = None
    ) -> None:
        self._rights = rights
        self._types = types
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
        if self._types is not None:
            self._check_type(self._types, message, peer)

    def _check_address(self, message: Message, peer: RemotePeer) -> None:
        decision = self._rights.may_send_to(message.to)
        if not decision.allowed:
            peer.bus.log_refusal("message.refused", peer.name, decision.rule, to=message.to)
            raise AccessRefused(decision.reason, rule=decision.rule, to=message.to)
        if len(self._allowed) >= _MAX_REMEMBERED:
            self._allowed.clear()
        self._allowed.add(message.to)

    def _check_type(self, types: TypeChecks, message: Message, peer: RemotePeer) -> None:
        sender = str(message.sender)
        decision = types.decide_for(peer.name, sender, types.type_of(message.payload))
        if not decision.allowed:
            peer.bus.log_refusal("message.refused", peer.name, decision.rule, sender=sender)
            raise AccessRefused(decision.reason, rule=decision.rule, sender=sender)
