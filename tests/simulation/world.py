"""The world: a bus in memory, random peers, and what they do to it, step by step."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace
from structlog.testing import capture_logs

from busd.bus.access import Policy
from busd.bus.delivery import DeliveryLimits
from busd.testing import MemoryBus
from busd.wire.connection import WireLimits
from busd.wire.credentials import Credentials
from tests.simulation.accounting import check_accounts, check_nothing_counted
from tests.simulation.actor import Actor, Asked, Fate, Group
from tests.simulation.ledger import Ledger, Record, claim
from tests.simulation.oracle import matches

LIMITS = DeliveryLimits(ack_seconds=10, max_ack_bytes=600, max_held_bytes=2_000)
WIRE = WireLimits(
    max_frame_bytes=4_096,
    max_hello_bytes=512,
    max_queue_bytes=2_000,
    max_unread_bytes=5_000,
    first_request_seconds=10,
)
_PROCESS = b'"method":"processMessage"'
Effect = Callable[[], None]


class World:
    """One run: the bus, everyone on it, and what the model knows of them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.policy: Policy = self.random.choice(["open", "open", "strict"])
        self.limits = replace(LIMITS, max_unanswered=self.random.choice([1, 6, 6, 50]))
        self.bus = MemoryBus(self.limits, wire=WIRE, policy=self.policy)
        if seed % 2:  # end a turn at every look at the clock: nearly everything takes several
            turns = self.bus.connections.turns
            turns.slice_seconds = turns.round_seconds = 0.0
        self.ledger = Ledger(self.bus.clock, LIMITS.max_ack_bytes)
        self.actors: list[Actor] = []
        self.story: deque[str] = deque(maxlen=25)
        self.new_records: list[Record] = []  # of this step
        self.just_expired: frozenset[int] = frozenset()
        self.messages = 0
        self._uids = 0
        self._request_ids = 0

    def tell(self, what: str) -> None:
        self.story.append(f"{self.bus.clock.now:8.2f}  {what}")

    # What actors do to the bus

    def connect(self) -> Actor:
        self._uids += 1
        random = self.random
        peer = self.bus.connect(
            f"#{self._uids}",
            web_socket=random.random() < 0.3,
            chunk=random.randint(1, 60) if random.random() < 0.2 else None,
            credentials=self._credentials(),
        )
        actor = Actor(self._uids, peer, self.bus.clock.now)
        self.actors.append(actor)
        return actor

    def _credentials(self) -> Credentials:
        """Return who connects: several identities, if everybody may, and some unknown ones."""
        if self.policy == "strict":
            return Credentials(uid=0, by="unix")
        return [
            Credentials(uid=0, by="unix"),
            Credentials(uid=7, by="unix"),
            Credentials(),
        ][self._uids % 3]

    def request_id(self) -> object:
        self._request_ids += 1
        return self.random.choice([self._request_ids, f"r{self._request_ids}"])

    def expect(self, actor: Actor, asked: list[Asked], *, is_batch: bool = False) -> Effect:
        """Return the effect of asking: an answer is waited for."""

        def effect() -> None:
            if asked:
                actor.groups.append(Group(asked, is_batch))
            for each in asked:
                if each.record is not None:
                    each.record.is_in_batch = is_batch

        return effect

    def record(self, actor: Actor, to: str, params: dict[str, Any]) -> tuple[Record, Effect]:
        """Return the record of a message, and the effect that finds out whom it goes to."""
        record = Record(
            number=params["payload"]["n"],
            sender=actor,
            speaks_as=params.get("from", actor.name),
            to=to,
            message_id=params.get("messageId"),
            payload=json.dumps(params["payload"]).encode(),
            deadline=0,
            fates={},
        )

        def effect() -> None:
            record.deadline = self.bus.clock.now + LIMITS.ack_seconds
            record.fates = {
                other: self._fate(other, record)
                for other in self.actors
                if other.is_member and any(matches(p, to) for p in other.patterns)
            }
            self.ledger.add(record)
            self.new_records.append(record)

        return record, effect

    def _fate(self, actor: Actor, record: Record) -> Fate:
        """What may become of a message that is handed over now; exact for a peer that reads."""
        if not actor.is_reading:
            return Fate(is_sure=False, may_be={"busy"})
        if len(actor.pending) >= self.limits.max_unanswered:
            return Fate(is_sure=True, may_be={"busy"})
        actor.pending[record.number] = record.deadline
        return Fate(is_sure=True)

    def wake(self, actor: Actor) -> None:
        """Let a peer read again; the bus then reads what it has not read of that peer."""
        self.ledger.outcomes["clogged and read on"] += bool(actor.deferred)
        actor.read_on()

    def pass_time(self, seconds: float) -> None:
        self.bus.advance(seconds)
        self.just_expired = self.ledger.expire()

    # What must be true after every step

    def run_step(self, step: Callable[[], None]) -> None:
        """Do one thing, then look at everything."""
        self.new_records.clear()
        self.just_expired = frozenset()
        with capture_logs() as logs:
            step()
        ours = [entry for entry in logs if entry["log_level"] == "error"]
        claim(not ours, f"a fault of the bus itself: {ours}")
        self.observe()

    def observe(self) -> None:
        """Let the model see what the peers saw, and hold the bus to it."""
        for actor in self.actors:
            self._notice_end(actor)
            while actor.peer.inbox:
                self.ledger.hand(actor, actor.peer.inbox.popleft())
        for actor in self.actors:
            frames = [frame for frame in actor.peer.frames if _PROCESS not in frame]
            actor.peer.frames.clear()
            for frame in frames:
                self.ledger.answered(actor, frame)
        for actor in self.actors:
            self._check_actor(actor)
        for record in self.new_records:
            self._check_handed(record)
        self._check_bus()
        self.actors = [actor for actor in self.actors if not actor.is_gone]

    def _notice_end(self, actor: Actor) -> None:
        if actor.peer.is_connected:
            return
        actor.is_gone = True
        if actor.has_left:
            return
        self.ledger.outcomes["closed by the bus"] += 1
        for record in self.new_records:
            if actor in record.fates:
                record.maybe.add(actor)
        self.ledger.leave(actor, just_expired=self.just_expired)

    def _check_actor(self, actor: Actor) -> None:
        waiting = [group for group in actor.groups if group.must_be_answered]
        if not actor.is_gone and actor.is_reading:
            claim(not waiting, f"{actor} still waits for an answer: {waiting}")
        if actor.has_left and actor.is_reading and not actor.forfeits:
            is_owed = bool(actor.groups)
            claim(is_owed or actor.is_gone, f"{actor} ended, is owed nothing and is not closed")
            claim(not (is_owed and actor.is_gone), f"{actor} was closed while answers were owed")
        unread = actor.peer.transport.waiting_bytes
        claim(unread <= WIRE.max_unread_bytes + 1_000, f"{unread} bytes wait for {actor}")
        age = self.bus.clock.now - actor.connected_at
        if not actor.name and not actor.is_gone:
            claim(age < WIRE.first_request_seconds, f"{actor} is still here after {age} s")

    def _check_handed(self, record: Record) -> None:
        """Whoever reads has been handed it by now, unless it is busy."""
        for actor, fate in record.fates.items():
            if fate.is_sure and "busy" not in fate.may_be and not actor.is_gone:
                number = record.number
                claim(number in actor.seen, f"{actor} was not handed {number} to {record.to}")

    def _check_bus(self) -> None:
        core = self.bus.core
        claim(0 <= core._held.count <= LIMITS.max_held_bytes, f"{core._held.count} bytes held")
        members = sorted(actor.name for actor in self.actors if actor.is_member)
        claim(sorted(peer.name for peer in core.peers) == members, "the wrong peers are members")
        claim(not self.bus.connections.touched, "something was not flushed")
        for peer in core.peers:
            claim(len(peer.calls) <= self.limits.max_unanswered, f"{peer.name} has too many calls")
        check_accounts(self.bus)

    # What must be true in the end

    def check_empty(self) -> None:
        """Nothing may be left when everybody is gone."""
        core, routes = self.bus.core, self.bus.core.routes
        claim(not core.peers, f"peers are left: {list(core.peers)}")
        claim(core.is_idle, "deliveries are left")
        check_nothing_counted(self.bus)
        claim(core._held.count == 0, f"{core._held.count} bytes are held for nobody")
        claim(not self.bus.connections.open, "connections are left")
        tables = (routes._exact, routes._prefixes, routes._prefix_lengths, routes._globs)
        claim(not any(tables), f"routes are left: {tables}")
        claim(not any(routes.remembered.values()), "peers are remembered")
