"""The world of mail: a bus in memory whose mail is on a simulated disk, and its random peers."""

from __future__ import annotations

from collections import deque
from random import Random
from random import seed as set_seed
from typing import Any

from structlog.testing import capture_logs

from busd.bus.delivery import DeliveryLimits
from busd.bus.mail import DeadFilter
from busd.bus.mail_policy import MailSettings
from busd.bus.mail_store import DropDead
from busd.mail.simulated import SimulatedDisk
from busd.testing import FakeClock, MemoryBus
from busd.wire.connection import WireLimits
from tests.simulation.ledger import claim
from tests.simulation.mail_ledger import Given, Letter, MailLedger, Party, Sent

DAY = 86_400.0
ACK_SECONDS = 10.0
WIRE = WireLimits(max_queue_bytes=2_000, max_unread_bytes=100_000)


class MailWorld:
    """One disk, the runs of a bus on it, and who is on the bus."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        set_seed(seed)  # of the pauses between attempts
        self.settings = MailSettings(
            keep=["w:3"],
            box_count=random.choice([10, 30, 10_000]),
            total_count=random.choice([30, 1_000, 1_000]),
            waiting_count=random.choice([5, 10_000, 10_000]),
            max_attempts=random.choice([4, 20]),
            first_retry_seconds=random.choice([0.5, 2]),
            max_retry_seconds=5,
            known_seconds=30 * DAY,
            key_seconds=30 * DAY,
            ttl_seconds=20 * DAY,
        )
        self.limits = DeliveryLimits(
            ack_seconds=ACK_SECONDS, max_unanswered=random.choice([1, 4, 50])
        )
        self.is_sliced = bool(seed % 2)
        self.clock, self.wall_clock = FakeClock(), FakeClock(10_000_000.0)
        self.disk = SimulatedDisk(self.settings)
        self.ledger = MailLedger()
        self.parties: list[Party] = []
        self.story: deque[str] = deque(maxlen=40)
        self.is_disk_quick = random.random() < 0.5
        self._numbers = self._uids = 0
        self.delivered_at = 0.0
        self.start()

    def tell(self, what: str) -> None:
        self.story.append(f"{self.clock.now:8.2f}  {what}")

    # Runs

    def start(self) -> None:
        self.ledger.crash()
        self.parties.clear()
        self.store = self.disk.start()
        self.bus = MemoryBus(
            self.limits,
            wire=WIRE,
            mail=self.settings,
            store=self.store,
            clock=self.clock,
            wall_clock=self.wall_clock,
        )
        if self.is_sliced:
            turns = self.bus.connections.turns
            turns.slice_seconds = turns.round_seconds = 0.0
        self.settle()

    def crash(self) -> None:
        is_synced, is_torn = self.random.choice([(True, False), (False, False), (False, True)])
        self.tell(f"the bus crashes; synced: {is_synced}, torn: {is_torn}")
        self.disk.crash(is_synced=is_synced, is_torn=is_torn)
        self.look(is_torn=is_torn)
        self.start()

    def restart(self) -> None:
        """Stop as the daemon does, which answers everybody, and start again."""
        self.tell("the bus restarts")
        self.bus.core.is_stopping = True
        self.settle()
        self.bus.stop()
        self.store.close(1)
        self.look()
        self.observe()
        for sent in self.ledger.open:
            claim(not sent.party.is_reading, f"{sent.letter.number} was not answered at the end")
        self.start()

    # The disk

    def sync(self, count: int | None = None) -> None:
        self.store.sync(count)
        self.look()

    def deliver(self) -> None:
        self.delivered_at = self.clock.now
        self.bus.run(self.store.deliver)
        self._observe_peers()

    def settle(self) -> None:
        while self.store.waiting:
            self.sync()
            self.deliver()
        mailboxes = self.bus.mailboxes
        awaited = {number for box in mailboxes.boxes.values() for number in box.in_flight}
        for operation, _ in mailboxes._in_vain:  # what the disk has failed, until the next sweep
            if isinstance(operation, DropDead):
                awaited.update(operation.ids or ())
        self.ledger.check_dead(awaited)

    def look(self, *, is_torn: bool = False) -> None:
        tables = self.disk.engine.tables
        mail = [each for box in tables._boxes.values() for each in box.values()]
        dead = tables.read_dead(DeadFilter(), 0, 1_000_000)
        self.ledger.look(mail, dead, is_torn=is_torn)

    # Peers

    def join(self, name: str, patterns: list[str], *, sees_attempts: bool) -> Party:
        self._uids += 1
        extensions = {"deliveryAttempt": True} if sees_attempts else None
        self.tell(f"{name}#{self._uids} joins and subscribes to {patterns}")
        peer = self.bus.connect(name)
        party = Party(self._uids, peer, {name, *patterns}, sees_attempts)
        peer.initialize(extensions=extensions)
        for pattern in patterns:
            peer.subscribe(pattern)
        self.parties.append(party)
        return party

    def letter(self, party: Party, to: str, delivery: dict[str, Any] | None) -> Letter:
        """Make up a message."""
        self._numbers += 1
        number = self._numbers
        text = "x" * self.random.choice([0, 10, 900])
        params: dict[str, Any] = {"to": to, "payload": {"n": number, "text": text}}
        if self.random.random() < 0.5:
            params["messageId"] = f"m{number}"
        if delivery is not None:
            params["delivery"] = delivery
        ttl = (delivery or {}).get("ttlSeconds", self.settings.ttl_seconds)
        letter = Letter(
            number,
            party.peer.name,
            party.uid,
            to,
            f'{{"n":{number},"text":"{text}"}}'.encode(),
            params,
            is_mail=bool((delivery or {}).get("durable")),
            expires_at=self.wall_clock.now + ttl,
        )
        self.ledger.letters[number] = letter
        return letter

    def send(self, party: Party, letters: list[Letter], *, reuses: Letter | None = None) -> None:
        """Send messages, in a batch if there are several."""
        for letter in letters:
            letter.sends += 1
            self.tell(f"{party} sends {letter.number} to {letter.to}: {letter.params}"[:200])
        calls = [("sendMessage", letter.params) for letter in letters]
        peer = party.peer
        answers = peer.batch(*calls) if len(calls) > 1 else [peer.call(*calls[0])]
        for letter, answer in zip(letters, answers, strict=True):
            self.ledger.open.append(Sent(letter, party, answer, self.clock.now, reuses))

    def notify(self, party: Party, letter: Letter) -> None:
        letter.sends += 1
        self.tell(f"{party} notifies {letter.to} of {letter.number}: {letter.params}"[:200])
        options = letter.params.get("delivery")
        peer = party.peer
        peer.notify(
            letter.to,
            letter.params["payload"],
            message_id=letter.params.get("messageId"),
            delivery=options,
        )

    def note_answer(self, party: Party, given: Given, *, success: bool) -> None:
        """Record what a peer is about to answer."""
        letter = self.ledger.letters[given.handed.payload["n"]]
        if not party.answers_for(letter.to):
            return
        is_heard = party.may_speak and party.peer.transport.is_read_by_bus
        is_known = is_heard and self.clock.now < given.at + ACK_SECONDS
        if not success:
            letter.was_refused = True
            if is_known and given.is_only:
                letter.refused_in = self.ledger.run
        elif letter.mail_id or letter.is_mail:
            letter.may_be_acked = True
            if is_known:
                letter.acked_in = self.ledger.run

    # What must be true after every step

    def advance(self, seconds: float) -> None:
        """Let time pass; the disk does its work meanwhile if it is a quick one."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            step = min(0.25, end - self.clock.now)
            self.wall_clock.now += step
            self.ledger.latest = max(self.ledger.latest, self.wall_clock.now)
            self.bus.advance(step)
            self._observe_peers()
            if self.is_disk_quick:
                self.settle()

    def run_step(self, step: Any) -> None:
        with capture_logs() as logs:
            step()
            if self.is_disk_quick and self.random.random() < 0.9:
                self.settle()
        ours = [entry for entry in logs if entry["log_level"] == "error"]
        claim(not ours, f"a fault of the bus itself: {ours}")
        self.observe()

    def read_on(self, party: Party) -> None:
        """Let a peer read what has waited for it."""
        self.tell(f"{party} reads on")
        party.is_reading = party.is_catching_up = True
        party.peer.read_on()
        self._observe_peers()
        party.is_catching_up = False

    def observe(self) -> None:
        self._observe_peers()
        self.ledger.check_owed()
        self._check_waiting()
        self.parties = [party for party in self.parties if party.peer.is_connected]

    def _observe_peers(self) -> None:
        """Let the model see what peers were handed, in the order of the calls."""
        seen = []
        for party in self.parties:
            seen += [(handed.call_id, party.uid, party, handed) for handed in party.peer.inbox]
            party.peer.inbox.clear()
        for _, _, party, handed in sorted(seen, key=lambda each: each[:2]):
            others = [
                each
                for each in self.parties
                if each is not party and each.peer.is_connected and each.answers_for(handed.to)
            ]
            self.ledger.hand(party, handed, self.clock.now, is_only=not others)
        self.ledger.read_answers()

    def _check_waiting(self) -> None:
        """Whoever waits is answered in time, and charged until then and no longer."""
        still_open: list[Sent] = []
        waiting: dict[Party, int] = {}
        for sent in self.ledger.open:
            if not sent.party.peer.is_connected:
                continue
            still_open.append(sent)
            waiting[sent.party] = waiting.get(sent.party, 0) + 1
            is_late = self.clock.now > max(sent.at + ACK_SECONDS, self.delivered_at) + 1
            if is_late and not self.store.waiting and sent.party.is_reading:
                claim(not sent.party.peer.transport.is_read_by_bus, f"{sent.letter.number} waits")
        self.ledger.open = still_open
        for peer in self.bus.core.remote_peers:
            claim(peer.allowance.waiting >= peer.allowance.unasked, f"{peer.name} is miscounted")
        for box in self.bus.mailboxes.boxes.values():
            claim(len(box.in_flight) <= 256, f"{box.address}: too much is in flight")
            if not self.bus.mailboxes.is_deliverable(box.address):
                claim(len(box.queue) <= 256, f"{box.address}: too much is in memory")
