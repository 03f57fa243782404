"""The bus: who is on it, and how a message gets from one to the others. It does no I/O."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import structlog
from msgspec import UNSET, Raw
from ulid import ULID

from busd.bus.access import Identity, Rights
from busd.bus.authenticator import Authenticator
from busd.bus.delivery import Delivery, DeliveryLimits, FanOut, HeldBytes
from busd.bus.guard import NameChecks, TypeChecks
from busd.bus.journal import Journal, Row
from busd.bus.local import LocalPeer
from busd.bus.message import NOTHING, Ack, Message, Receipt
from busd.bus.peer import BUSY_RETRY_SECONDS, Member, Peer, RemotePeer
from busd.bus.routes import Routes
from busd.bus.tally import SAMPLE_MASK, Tally
from busd.errors import Busy, InvalidParams, NotInitialized
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import Call, LooseEnvelope, RequestId, encode
from busd.rpc.methods import Methods, dispatch
from busd.wire.connection import Connection

log = structlog.get_logger("busd.bus")

_CLOSING_BRACE = ord("}")


class Watcher(Protocol):
    """Whoever wants to know which remote peers come and go."""

    def on_peer_joined(self, name: str) -> None:
        """Hear of each connection that takes a name."""

    def on_peer_left(self, name: str) -> None:
        """Hear that the last connection of a name is no more."""


class Bus:
    """Peers, routes and the deliveries between them."""

    def __init__(
        self,
        methods: Methods[RemotePeer],
        limits: DeliveryLimits | None = None,
        authenticator: Authenticator | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server_id = f"bus-{secrets.token_hex(6)}"
        self.limits = limits or DeliveryLimits()
        self.authenticator = authenticator or Authenticator()
        self.routes = Routes()
        self._remembered = self.routes.remembered
        self.peers: dict[Member, None] = {}  # in the order they joined
        self.watchers: list[Watcher] = []
        self.type_checks = TypeChecks()
        self.name_checks = NameChecks()
        self._present: dict[str, list[RemotePeer]] = {}  # by name
        self.is_stopping = False
        self.is_verbose = False  # asked here and not of the log: 0.02 µs instead of 0.1
        self.tally = Tally()
        self.journal: Journal | None = None
        self.wall_offset = 0.0  # added to our clock it gives the time of day; kept by the daemon
        self.clock = clock
        self._held = HeldBytes()
        self.last_call_id = 0
        self.methods = methods
        self._table = methods.table
        self._first_table = methods.only("initialize", _not_initialized)

    def make_session(self, connection: Connection) -> RemotePeer:
        """Give the party that will speak over a new connection."""
        return RemotePeer(connection, self)

    def dispatch(self, peer: RemotePeer, envelope: LooseEnvelope, asker: Asker) -> None:
        """Answer any request but a plain `sendMessage`."""
        table = self._table if peer.is_initialized else self._first_table
        dispatch(table, envelope, peer, asker)

    def deliver(
        self,
        message: Message,
        asker: Asker,
        request_id: RequestId,
        peers: tuple[Peer, ...] | None = None,
    ) -> None:
        """Carry one accepted message to everyone it is addressed to, or to some of them."""
        if not message.message_id and message.message_id != 0:  # missing, or empty
            message.message_id = f"msg_{ULID()}"
        if peers is None:
            peers = self._remembered.get(message.to)
            if peers is None:
                peers = self.routes.match(message.to)
        call_id = self.last_call_id + 1
        # One call id for all addressees, so one frame for all: the answer is looked up among the
        # calls of the peer that sent it. (64 KiB to 100 peers: encoded once, not 100 times.)
        frame = encode(Call(call_id, "processMessage", message))
        # The payload stands last: if the byte before the two closing braces is one, it is an
        # object. 0.03 µs, where looking into the Raw costs 0.1.
        if frame[-3] != _CLOSING_BRACE:
            raise InvalidParams("sendMessage: payload must be an object", member="payload")
        if self.is_stopping:
            raise Busy("the bus is stopping", retrySeconds=1)
        self.last_call_id = call_id  # only now: it counts what was accepted, too
        kept: Raw | str = ""
        if self.journal is not None and self.journal.keeps_payloads:
            is_short = len(frame) < self.journal.settings.head_bytes
            kept = message.payload if is_short else self.journal.keep(message.payload)
        delivery: Delivery
        if len(peers) == 1:
            delivery = Delivery(call_id, message, asker, request_id, self.clock(), kept)
            peers[0].hand_over(message, frame, delivery)
        elif peers:
            asker.charge()
            self.tally.extra_copies += len(peers) - 1
            delivery = FanOut(
                call_id,
                message,
                asker,
                request_id,
                self.clock(),
                kept,
                len(peers),
                peers[0],
                self._held,
                self.limits,
            )
            for peer in peers:
                peer.hand_over(message, frame, delivery)
        else:
            self._deliver_to_nobody(message, call_id, kept, asker, request_id)
            return
        message.payload = NOTHING  # a large frame must not stay in memory until the last ack
        if self.is_verbose:
            self.log_message(message, [peer.name for peer in peers])

    def deliver_past(
        self, peer: Peer, message: Message, asker: Asker, request_id: RequestId
    ) -> None:
        """Deliver to everyone but `peer`, which has it already and passes it on."""
        others = tuple(each for each in self.routes.match(message.to) if each is not peer)
        self.deliver(message, asker, request_id, others)

    def log_message(self, message: Message, peers: list[str]) -> None:
        """Say at level debug where a message went; never what is in it."""
        log.debug(
            "message.handed_over",
            message=message.message_id,
            sender=message.sender,
            to=message.to,
            peers=peers,
        )

    def _deliver_to_nobody(
        self,
        message: Message,
        call_id: int,
        kept: Raw | str,
        asker: Asker,
        request_id: RequestId,
    ) -> None:
        """Say, and note, that nobody was there."""
        self.tally.unrouted += 1
        if self.is_verbose:
            self.log_message(message, [])
        message_id: Any = message.message_id  # set by now
        if self.journal is not None:
            now = self.clock() + self.wall_offset
            row = (call_id, str(message_id), request_id, str(message.sender), message.to, "", 1)
            self.journal.add((*row, now, 0.0, 0.0, now, "no route", "", kept))
        asker.answer(request_id, Receipt(True, message_id, [], "no route"))

    def count(self, delivery: Delivery, ack: Ack) -> None:
        """Count an ack that failed, or that is one of those timed."""
        if not ack.success:
            self.tally.count_failed(ack.message)
        if not delivery.call_id & SAMPLE_MASK:
            self.tally.observe(self.clock() - delivery.started)

    def note(self, fan_out: FanOut, peer: Peer, ack: Ack) -> None:
        """Count one of several acks, and write it into the activity log."""
        self.count(fan_out, ack)
        if self.journal is None:
            return
        ended = self.clock()
        last = 0.0 if fan_out.missing else ended
        self.journal.add(fan_out.ended_row(peer, ack, ended, last, self.wall_offset))

    def open_since(self, call_id: int) -> Iterator[Row]:
        """Give a row, in flight, for each delivery that is later than `call_id` and still open."""
        for peer in list(self.peers):
            for number in reversed(peer.calls):
                if number <= call_id:
                    break
                yield peer.calls[number].open_row(peer, self.wall_offset)

    def join(self, peer: Member) -> None:
        """Let a peer that has taken its name be found."""
        self.peers[peer] = None
        self.subscribe(peer, peer.name)
        log.info("peer.joined", peer=peer.name, connection=peer.connection_id)
        if isinstance(peer, RemotePeer):
            self._present.setdefault(peer.name, []).append(peer)
            for watcher in list(self.watchers):
                watcher.on_peer_joined(peer.name)

    def leave(self, peer: Member, reason: str) -> None:
        """Undo everything a peer registered and fail, now, what it has not answered."""
        if peer not in self.peers:
            return
        del self.peers[peer]
        for pattern in peer.subscriptions:
            self.routes.remove(pattern, peer)
        peer.subscriptions.clear()
        calls, peer.calls = peer.calls, {}
        log.info("peer.left", peer=peer.name, connection=peer.connection_id, reason=reason)
        if isinstance(peer, RemotePeer):
            self._forget(peer)
        # After the watchers: one may stand in for the peer by now, and gets what is sent again.
        has_stand_in = bool(calls) and self._has_stand_in(peer.name)
        for delivery in calls.values():
            is_covered = has_stand_in and delivery.message.to == peer.name
            retry_seconds = BUSY_RETRY_SECONDS if is_covered else None
            delivery.settle_failed(peer, "peer left before it answered", retry_seconds)

    def _forget(self, peer: RemotePeer) -> None:
        same = self._present[peer.name]
        same.remove(peer)
        if same:
            return
        del self._present[peer.name]
        for watcher in list(self.watchers):
            watcher.on_peer_left(peer.name)

    def _has_stand_in(self, name: str) -> bool:
        """True if a plugin is subscribed to the very name of a peer."""
        peers = self.routes.match(name)
        return any(isinstance(each, LocalPeer) and name in each.subscriptions for each in peers)

    def present(self, name: str) -> list[RemotePeer]:
        """Give the remote peers of that name."""
        return self._present.get(name, [])

    def heard(self) -> dict[str, tuple[int, int]]:
        """Give how much each remote peer has said so far, and how many acks it owes.

        The first number means nothing but that it grows: who looks twice knows who was quiet.
        """
        found: dict[str, tuple[int, int]] = {}
        for peer in self.remote_peers:
            reads, owed = found.get(peer.name, (0, 0))
            found[peer.name] = (reads + peer.connection.reads, owed + len(peer.calls))
        return found

    @property
    def remote_peers(self) -> list[RemotePeer]:
        """Those at the other end of a connection."""
        return [peer for peer in self.peers if isinstance(peer, RemotePeer)]

    def change(self, limits: DeliveryLimits) -> None:
        """Take new limits while running; they hold for those who are here, too."""
        self.limits = limits
        for peer in self.remote_peers:
            peer.max_unanswered = limits.max_unanswered

    def take_access(self, authenticator: Authenticator) -> None:
        """Apply changed rules to everybody who is here; who may not stay is closed."""
        self.authenticator = authenticator
        for peer in self.remote_peers:
            rights = authenticator.rights_of(peer.identity)
            if authenticator.is_revoked(peer.identity):
                rights = Rights(())
            if _may_stay(peer, rights):
                peer.take_rights(rights)
            else:
                log.warning("peer.refused", peer=peer.name, reason="access was withdrawn")
                peer.connection.close(1008, "access was withdrawn")

    def dismiss(self, name: str, may_stay: Callable[[Identity], bool], reason: str) -> None:
        """Close the connections of a name whose owners may not have it."""
        for peer in list(self.present(name)):
            if not may_stay(peer.identity):
                log.warning("peer.refused", peer=name, reason=reason)
                self.leave(peer, reason)  # now: the name is free for whoever it belongs to
                peer.connection.close(1008, reason)

    def take_type_checks(self) -> None:
        """Apply changed type checks to everybody who is here; a rate starts anew."""
        for peer in self.remote_peers:
            peer.take_rights(peer.rights)

    def log_refusal(self, event: str, peer: str, rule: str, **facts: str) -> None:
        """Log what a peer may not do."""
        log.warning(event, peer=peer, rule=rule, **facts)

    def subscribe(self, peer: Member, pattern: str) -> None:
        """Route what `pattern` matches to a peer, within what one peer may have."""
        limit = self.limits.max_subscriptions
        is_full = len(peer.subscriptions) >= limit and isinstance(peer, RemotePeer)
        if is_full and pattern not in peer.subscriptions:
            raise Busy(f"more than {limit} subscriptions", rule="max_subscriptions", limit=limit)
        self.routes.add(pattern, peer)
        peer.subscriptions.add(pattern)

    def unsubscribe(self, peer: Member, pattern: str) -> None:
        self.routes.remove(pattern, peer)
        peer.subscriptions.discard(pattern)

    def owes_answer(self, peer: RemotePeer) -> bool:
        """True while a message that `peer` sent is waiting for an ack."""
        return any(
            delivery.request_id is not UNSET and delivery.asker.belongs_to(peer)
            for addressee in self.peers
            for delivery in addressee.calls.values()
        )

    @property
    def is_idle(self) -> bool:
        """True when nobody owes an ack."""
        return not any(peer.calls for peer in self.peers)

    def sweep(self) -> None:
        """Fail the deliveries whose time is up; each peer's calls are in order of deadline."""
        now = self.clock()
        for peer in list(self.peers):
            while peer.calls:
                call_id = next(iter(peer.calls))
                if peer.calls[call_id].started + self.limits.ack_seconds > now:
                    break
                peer.calls.pop(call_id).settle_failed(peer, "no answer in time")

    def give_up(self, reason: str) -> None:
        """Fail every delivery that is still waiting."""
        for peer in list(self.peers):
            calls, peer.calls = peer.calls, {}
            for delivery in calls.values():
                delivery.settle_failed(peer, reason)


def _may_stay(peer: RemotePeer, rights: Rights) -> bool:
    """True if a peer may still have its name and everything it subscribed to.

    One subscription too many ends the connection: without a word it would wait in vain.
    """
    others = peer.subscriptions - {peer.name}
    return rights.may_be(peer.name).allowed and all(
        rights.may_subscribe(pattern).allowed for pattern in others
    )


def _not_initialized() -> NotInitialized:
    return NotInitialized("initialize first")
