"""Random steps over the world of mail, held to the invariants after each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.ledger import InvariantBroken, claim
from tests.simulation.mail_ledger import Letter, Party
from tests.simulation.mail_world import ACK_SECONDS, DAY, MailWorld

SENDERS = ["s:1", "s:2"]
WORKERS = ["w:1", "w:2", "w:3"]  # addresses
NAMES = ["worker1", "worker2"]  # a name without a prefix speaks for others: all its patterns count
MAX_PARTIES = 8
_RETRIES = [
    b'{"success":false,"shouldRetry":true}',
    b'{"success":false,"shouldRetry":true,"retrySeconds":0}',
    b'{"success":false,"shouldRetry":true,"retrySeconds":4,"message":"later"}',
    b'{"success":false,"shouldRetry":true,"retrySeconds":30}',
]
_REFUSALS = [b'{"success":false,"message":"never"}', b"17", b'{"success":"yes"}']
_ACKS = [b'{"success":true,"payload":{"done":1}}', b"null", b"{}"]


def simulate_mail(seed: int, steps: int) -> MailWorld:
    """Run one seed; raises InvariantBroken with the story and the command that replays it."""
    simulation = MailSimulation(seed)
    try:
        for _ in range(steps):
            simulation.step()
        simulation.finish()
    except Exception as problem:
        story = "\n".join(simulation.world.story)
        what = f"{type(problem).__name__}: {problem}"
        raise InvariantBroken(
            f"seed {seed}, step {simulation.steps_done}: {what}\n{story}\n"
            f"replay: python -m tests.simulation --mail --seed {seed} --steps {steps}"
        ) from problem
    return simulation.world


class MailSimulation:
    """Chooses what happens next."""

    def __init__(self, seed: int) -> None:
        self.world = MailWorld(seed)
        self.random = self.world.random
        steps: dict[Callable[[], None], int] = {
            self.join: 16,
            self.send: 30,
            self.send_again: 8,
            self.reuse_a_key: 2,
            self.notify: 5,
            self.send_batch: 4,
            self.send_plainly: 10,
            self.ack: 40,
            self.want_it_later: 8,
            self.refuse: 6,
            self.answer_twice: 2,
            self.never_answer: 3,
            self.leave: 3,
            self.half_close: 1,
            self.stop_reading: 2,
            self.read_on: 8,
            self.sync: 20,
            self.deliver: 20,
            self.settle: 25,
            self.fail: 3,
            self.crash: 1,
            self.restart: 1,
            self.pass_time: 15,
            self.pass_much_time: 2,
            self.set_the_clock: 1,
        }
        self._steps = list(steps)
        self._weights = list(steps.values())
        self.steps_done = 0

    def step(self) -> None:
        chosen = self.random.choices(self._steps, self._weights)[0]
        self.world.run_step(chosen)
        self.steps_done += 1

    # Who

    def _party(self, *names: str) -> Party | None:
        fit = [
            party
            for party in self.world.parties
            if party.may_speak and (not names or party.peer.name in names)
        ]
        return self.random.choice(fit) if fit else None

    def join(self) -> None:
        world, random = self.world, self.random
        if len(world.parties) >= MAX_PARTIES:
            return
        if not any(party.peer.name in SENDERS and party.may_speak for party in world.parties):
            world.join(random.choice(SENDERS), [], sees_attempts=False)
        elif random.random() < 0.1:
            pattern = random.choice(["*", "?:1"])
            world.join(f"o:{random.randrange(9)}", [pattern], sees_attempts=random.random() < 0.5)
        else:
            name = random.choice([*SENDERS, *NAMES, *NAMES])
            address = random.choice(WORKERS)
            patterns = random.choice([[address], [address], ["w:*"], ["w:[12]"]])
            patterns = [] if name in SENDERS else patterns
            world.join(name, patterns, sees_attempts=random.random() < 0.7)

    # What they send

    def _delivery(self) -> dict[str, Any]:
        delivery: dict[str, Any] = {"durable": True}
        if self.random.random() < 0.4:
            delivery["idempotencyKey"] = f"k{self.random.randrange(10**9)}"
        if self.random.random() < 0.3:
            delivery["ttlSeconds"] = self.random.choice([2, 4, 15, 60])
        return delivery

    def _letter(self, party: Party) -> Letter:
        return self.world.letter(party, self.random.choice(WORKERS), self._delivery())

    def send(self) -> None:
        if party := self._party(*SENDERS):
            self.world.send(party, [self._letter(party)])

    def send_batch(self) -> None:
        if party := self._party(*SENDERS):
            letters = [self._letter(party) for _ in range(self.random.randint(2, 12))]
            self.world.send(party, letters)

    def notify(self) -> None:
        if party := self._party(*SENDERS):
            self.world.notify(party, self._letter(party))

    def send_plainly(self) -> None:
        if party := self._party(*SENDERS):
            letter = self.world.letter(party, self.random.choice([*WORKERS, "nobody"]), None)
            self.world.send(party, [letter])

    def _keyed(self, party: Party) -> Letter | None:
        """Return a message of a sender that has a key, given or by its id."""
        letters = list(self.world.ledger.letters.values())[-40:]
        fit = [
            letter
            for letter in letters
            if letter.is_mail
            and letter.sender == party.peer.name
            and not letter.has_used_key
            and ("messageId" in letter.params or "idempotencyKey" in letter.params["delivery"])
        ]
        return self.random.choice(fit) if fit else None

    def send_again(self) -> None:
        if (party := self._party(*SENDERS)) and (letter := self._keyed(party)):
            self.world.send(party, [letter])

    def reuse_a_key(self) -> None:
        """Send another message with the key of one that is known to the disk."""
        if not (party := self._party(*SENDERS)) or not (first := self._keyed(party)):
            return
        key = first.params["delivery"].get("idempotencyKey")
        if not first.mail_id or not key or "messageId" not in first.params:
            return
        other = self.world.letter(party, first.to, {"durable": True, "idempotencyKey": key})
        other.has_used_key = True
        self.world.send(party, [other], reuses=first)

    # What they answer

    def _answer(self, answers: list[bytes], *, success: bool | None) -> None:
        busy = [party for party in self.world.parties if party.may_speak and party.todo]
        if not busy:
            return
        party = self.random.choice(busy)
        count = self.random.choice([1, 3, 20])
        for _ in range(min(count, len(party.todo))):
            given = party.todo.pop(self.random.choice([0, 0, -1]))
            answer = self.random.choice(answers)
            self.world.tell(f"{party} answers {given.handed}: {answer!r}"[:200])
            if success is not None:
                self.world.note_answer(party, given, success=success)
            given.handed.answer_raw(answer)

    def ack(self) -> None:
        self._answer(_ACKS, success=True)

    def want_it_later(self) -> None:
        self._answer(_RETRIES, success=None)

    def refuse(self) -> None:
        self._answer(_REFUSALS, success=False)

    def answer_twice(self) -> None:
        busy = [party for party in self.world.parties if party.may_speak and party.todo]
        if busy:
            party = self.random.choice(busy)
            given = party.todo.pop(0)
            self.world.note_answer(party, given, success=True)
            self.world.tell(f"{party} acks {given.handed} and refuses it then")
            given.handed.answer_raw(_ACKS[0])
            given.handed.answer_raw(_REFUSALS[0])

    def never_answer(self) -> None:
        if (party := self._party()) and party.todo:
            party.todo.pop(0)

    # How they go

    def leave(self) -> None:
        if party := self._party():
            self.world.tell(f"{party} leaves")
            party.peer.leave()

    def half_close(self) -> None:
        if party := self._party():
            self.world.tell(f"{party} half-closes")
            party.has_ended = True
            party.peer.half_close()

    def stop_reading(self) -> None:
        if party := self._party():
            self.world.tell(f"{party} stops reading")
            party.is_reading = False
            party.peer.stop_reading()

    def read_on(self) -> None:
        for party in self.world.parties:
            if not party.is_reading:
                self.world.read_on(party)
                break

    # The disk, the bus and time

    def sync(self) -> None:
        self.world.tell("the disk writes")
        self.world.sync(self.random.choice([None, None, 1, 3]))

    def deliver(self) -> None:
        self.world.tell("the bus is told of it")
        self.world.deliver()

    def settle(self) -> None:
        self.world.tell("the disk does all its work")
        self.world.settle()

    def fail(self) -> None:
        count = self.random.choice([None, 1, 2])
        self.world.tell(f"the disk fails, {count} operations")
        self.world.store.fail("disk full", count)

    def crash(self) -> None:
        self.world.crash()

    def restart(self) -> None:
        self.world.restart()

    def pass_time(self) -> None:
        self.world.tell("time passes")
        self.world.advance(self.random.choice([0.25, 1, 3]))

    def pass_much_time(self) -> None:
        self.world.tell("much time passes")
        self.world.advance(self.random.choice([10, 12, 30]))

    def set_the_clock(self) -> None:
        jump = self.random.choice([-DAY, DAY, -3600, 3600])
        self.world.tell(f"the clock is set by {jump:+}")
        self.world.wall_clock.now += jump
        self.world.ledger.latest = max(self.world.ledger.latest, self.world.wall_clock.now)

    # The end

    def finish(self) -> None:
        """Deliver all that is left, and look that nothing is left behind."""
        world = self.world
        world.is_disk_quick = True
        if self.random.random() < 0.5:
            world.run_step(world.crash)
        for party in world.parties:
            if party.peer.name not in SENDERS:
                party.peer.leave()
            elif not party.is_reading:
                world.read_on(party)
        world.run_step(world.settle)
        if self.random.random() < 0.5:
            world.store.fail("disk full")  # while they join
        workers = [world.join(NAMES[0], [address], sees_attempts=True) for address in WORKERS]
        for _ in range(400):
            world.run_step(lambda: self._finish_some(workers))
            if not world.ledger.disk:
                break
        left = list(world.ledger.disk.values())
        claim(not left, f"mail is left: {left[:3]}")
        world.run_step(lambda: world.advance(ACK_SECONDS + 2))
        self._check_end()

    def _finish_some(self, workers: list[Party]) -> None:
        for worker in workers:
            while worker.todo:
                given = worker.todo.pop(0)
                self.world.note_answer(worker, given, success=True)
                given.handed.answer_raw(_ACKS[0])
        self.world.settle()
        self.world.advance(1)

    def _check_end(self) -> None:
        world, ledger = self.world, self.world.ledger
        claim(not ledger.open, f"never answered: {[sent.letter.number for sent in ledger.open]}")
        for number, letter in ledger.dead.items():
            known = ledger.letters[number]
            if letter.mail.reason == "expired":
                claim(letter.mail.expires_at <= ledger.latest, f"{number} is expired too early")
            else:
                is_tried = known.attempts or letter.mail.attempts
                claim(is_tried, f"{number} was given up without an attempt: {letter}")
        world.run_step(lambda: world.advance(12))
        mailboxes, core = world.bus.mailboxes, world.bus.core
        claim(not mailboxes.boxes, f"mailboxes are left: {list(mailboxes.boxes)}")
        claim(not mailboxes.dormant, f"addresses are left: {mailboxes.dormant}")
        claim(not core.routes.diverted, f"addresses are diverted: {core.routes.diverted}")
        claim(not mailboxes.senders._waiters, "somebody waits for nothing")
        claim(not mailboxes.senders._outcomes, f"outcomes are left: {mailboxes.senders._outcomes}")
        nobody = mailboxes.nobody
        claim(not nobody.allowance.waiting, f"mail is counted: {nobody.allowance.waiting}")
        claim(not nobody.allowance.unasked, f"mail is counted: {nobody.allowance.unasked}")
        claim(not nobody.held.count, f"{nobody.held.count} bytes are held for nobody")
        for party in list(world.parties):
            party.peer.leave()
        world.run_step(world.settle)
        for account in (core.accounts.unknown, *core.accounts.by_name.values()):
            claim(account.is_empty, f"{account.name} is still charged")
