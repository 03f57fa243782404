"""The ledger of mail: what was sent, what the disk has, what became of it, and what must hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from busd.bus.mail import DeadLetter, Mail
from busd.testing import Answer, Handed, ScriptedPeer
from tests.simulation.ledger import claim
from tests.simulation.oracle import matches

V2_MEMBERS = {"from", "to", "messageId", "payload"}
FINAL = {"acked", "refused", "expired", "dead"}


@dataclass(eq=False)
class Given:
    """A message that a peer was handed."""

    handed: Handed
    at: float
    is_only: bool  # nobody else answered for its address then


@dataclass(eq=False)
class Party:
    """One peer of the simulation, and what the model knows of it."""

    uid: int
    peer: ScriptedPeer
    patterns: set[str]
    sees_attempts: bool
    is_reading: bool = True
    is_catching_up: bool = False  # it reads what was sent to it a while ago
    has_ended: bool = False  # it sends no more
    todo: list[Given] = field(default_factory=list)
    calls: set[int] = field(default_factory=set)

    def __repr__(self) -> str:
        return f"{self.peer.name}#{self.uid}"

    def answers_for(self, address: str) -> bool:
        """Return whether it is no mere observer of an address."""
        return any(
            matches(each, address) and not each.startswith(("*", "?")) for each in self.patterns
        )

    @property
    def may_speak(self) -> bool:
        return self.peer.is_connected and not self.has_ended


@dataclass(eq=False)
class Letter:
    """One message, sent once or several times."""

    number: int
    sender: str
    uid: int  # of the party that sent it first
    to: str
    payload: bytes
    params: dict[str, Any]
    is_mail: bool  # it wants to be kept
    expires_at: float
    sends: int = 0
    mail_id: int = 0  # once it was on the disk
    attempts: set[tuple[int, int]] = field(default_factory=set)  # run and call: handed over
    is_owed: bool = False  # its sender was told that it is safe
    may_be_acked: bool = False  # an addressee accepted it, and the bus may know
    acked_in: int = 0  # the run in which the bus learned of that
    refused_in: int = 0  # the run in which its only addressee refused it
    was_refused: bool = False
    is_refusal_told: bool = False
    is_gone: bool = False  # it was accepted, and the disk knows
    errors: int = 0
    has_used_key: bool = False  # its key belongs to another one


@dataclass(eq=False)
class Sent:
    """One send that wants an answer."""

    letter: Letter
    party: Party
    answer: Answer[Any]
    at: float
    reuses: Letter | None = None  # its key belongs to that one


class MailLedger:
    """All letters of one simulation."""

    def __init__(self) -> None:
        self.letters: dict[int, Letter] = {}
        self.open: list[Sent] = []
        self.disk: dict[int, Mail] = {}  # by number of the letter
        self.dead: dict[int, DeadLetter] = {}
        self.run = 0
        self.last_first: Counter[str] = Counter()  # by address: the last mail handed over first
        self.last_kept: Counter[tuple[int, str]] = Counter()  # by party and address
        self.latest = 0.0  # of all times of day
        self.outcomes: Counter[str] = Counter()

    # What the disk has

    def look(
        self, mail: Iterable[Mail], dead: Iterable[DeadLetter], *, is_torn: bool = False
    ) -> None:
        """Compare the disk with what it had before."""
        found: dict[int, Mail] = {}
        for each in mail:
            number = _number_of(each.payload)
            claim(number not in found, f"{number} is on the disk twice")
            found[number] = each
        self.dead = {_number_of(each.mail.payload): each for each in dead}
        every = [*found.values(), *(letter.mail for letter in self.dead.values())]
        for each in sorted(every, key=lambda mail: mail.id):
            self._note_kept(self.letters[_number_of(each.payload)], each)
        if is_torn:
            self._forget_lost(found)
        for number in self.disk.keys() - found.keys() - self.dead.keys():
            letter = self.letters[number]
            if letter.may_be_acked:
                letter.is_gone = True
            else:
                claim(letter.was_refused, f"{number} is gone, and nobody has accepted it")
        self.disk = found

    def _forget_lost(self, found: dict[int, Mail]) -> None:
        """Forget what the disk had and the bus was not told of."""
        for number in self.disk.keys() - found.keys() - self.dead.keys():
            self.letters[number].mail_id = 0
            del self.disk[number]
        for number in found.keys() | self.dead.keys():
            self.letters[number].is_gone = False

    def _note_kept(self, letter: Letter, mail: Mail) -> None:
        number = letter.number
        if letter.mail_id:
            claim(letter.mail_id == mail.id, f"{number} was kept as {letter.mail_id}: {mail}")
            return
        letter.mail_id = mail.id
        letter.expires_at = mail.expires_at
        claim(mail.payload == letter.payload, f"the payload of {number} was changed")
        claim((mail.sender, mail.address) == (letter.sender, letter.to), f"{number}: {mail}")
        self.outcomes["kept"] += 1
        if letter.sends == 1:
            key = letter.uid, letter.to
            claim(self.last_kept[key] < number, f"{number} was kept after {self.last_kept[key]}")
            self.last_kept[key] = number

    # What peers get

    def hand(self, party: Party, handed: Handed, now: float, *, is_only: bool) -> None:
        """A peer was handed a message; if it has just read on, that may be long ago."""
        number = _number_of(handed.raw_payload)
        letter = self.letters[number]
        call = self.run, handed.call_id
        claim(handed.call_id not in party.calls, f"{party} was handed {number} twice in one call")
        party.calls.add(handed.call_id)
        party.todo.append(Given(handed, -inf if party.is_catching_up else now, is_only))
        claim(handed.raw_payload == letter.payload, f"the payload of {number} was changed")
        claim((handed.sender, handed.to) == (letter.sender, letter.to), f"{number}: readdressed")
        known = V2_MEMBERS | ({"deliveryAttempt"} if party.sees_attempts else set())
        claim(handed.members.keys() <= known, f"{party} was handed {sorted(handed.members)}")
        claim(handed.delivery_attempt != 1, f"{number}: a first attempt needs no number")
        if party.is_catching_up:
            letter.attempts.add(call)
            return
        if letter.is_mail or letter.mail_id:
            claim(letter.mail_id, f"{party} was handed {number}, which is not on the disk")
            claim(letter.acked_in != self.run, f"{party} was handed {number} after it was acked")
            claim(letter.refused_in != self.run, f"{number} was handed over after it was refused")
            claim(not letter.is_gone, f"{party} was handed {number}, which is gone from the disk")
        else:
            claim(not letter.attempts or call in letter.attempts, f"{number} was handed over twice")
            claim(not letter.errors, f"{party} was handed {number}, which was refused")
        if call not in letter.attempts:
            if party.answers_for(letter.to):
                self._check_first(letter)
            letter.attempts.add(call)
        if party.sees_attempts:
            shown = handed.delivery_attempt or 1
            claim(
                shown >= len(letter.attempts),
                f"{party} was handed {number} as {shown}, it is {len(letter.attempts)}",
            )
        self.outcomes["handed over again"] += len(letter.attempts) > 1
        self.outcomes["handed over"] += 1

    def _check_first(self, letter: Letter) -> None:
        """A message that is handed over first comes after those kept before it."""
        mail = self.disk.get(letter.number)
        if letter.attempts or (mail is not None and mail.attempts > 1):
            return  # or it was handed to somebody who has not read it
        last = self.last_first[letter.to]
        if letter.mail_id:
            claim(last < letter.mail_id, f"{letter.number} came after mail {last} to {letter.to}")
            self.last_first[letter.to] = letter.mail_id
        for mail in self.disk.values():  # what it must not have overtaken
            other = self.letters[_number_of(mail.payload)]
            is_before = other.uid == letter.uid and other.number < letter.number
            if mail.address == letter.to and is_before and other.sends == letter.sends == 1:
                claim(other.attempts or mail.attempts, f"{letter.number} overtook {other.number}")

    # What senders get

    def read_answers(self) -> None:
        """Check the answers that have come; each comes once."""
        left = []
        for sent in self.open:
            claim(len(sent.answer.replies) < 2, f"{sent.letter.number} was answered twice")
            if sent.answer.is_done:
                self._check_answer(sent)
            else:
                left.append(sent)
        self.open = left

    def _check_answer(self, sent: Sent) -> None:
        letter, error = sent.letter, sent.answer.error
        if sent.reuses is not None:
            self._check_reuse(sent, sent.reuses)
        elif error is not None:
            claim(error.code == -32004, f"{letter.number}: {error}")
            data: Any = error.data
            claim(data["retrySeconds"] > 0, f"{letter.number} may be sent again when? {error}")
            letter.errors += 1
            self.outcomes[data["rule"]] += 1
        else:
            self._check_receipt(sent, msgspec_free(sent.answer.raw))

    def _check_reuse(self, sent: Sent, first: Letter) -> None:
        error = sent.answer.error
        claim(error is not None, f"{sent.letter.number} has the key of {first.number}")
        assert error is not None
        data: Any = error.data
        if error.code == -32004:
            return
        claim(error.code == -32602, f"{sent.letter.number}: {error}")
        claim(data["rule"] == "idempotency", f"{sent.letter.number}: {error}")
        claim(data["firstMessageId"] == first.params.get("messageId"), f"{error}")
        self.outcomes["key reused"] += 1

    def _check_receipt(self, sent: Sent, receipt: dict[str, Any]) -> None:
        letter, undelivered = sent.letter, receipt.get("undelivered")
        mail = receipt.get("mail")
        what = f"{letter.number} was answered {receipt}"
        if wanted := letter.params.get("messageId"):
            claim(receipt["messageId"] == wanted, what)
        self.outcomes[undelivered or (mail["state"] if mail else "plain")] += 1
        if mail is None:
            claim(not letter.is_mail, f"{what}: without what became of it")
            if undelivered in ("kept", "retrying"):
                self._owe(letter, what)
            return
        claim(mail["id"] == letter.mail_id, f"{what}: it is mail {letter.mail_id}")
        claim(mail.get("duplicate", False) <= (letter.sends > 1), what)
        self.outcomes["duplicate"] += mail.get("duplicate", False)
        state = mail["state"]
        claim((undelivered is None) is (state in FINAL), what)
        if state == "acked":
            claim(letter.may_be_acked, f"{what}: nobody accepted it")
            claim(any(ack["success"] for ack in receipt["acks"]), what)
        elif state == "refused":
            claim(letter.was_refused, f"{what}: nobody refused it")
            letter.is_refusal_told = True
        elif state == "expired":
            claim(letter.expires_at <= self.latest, what)
        elif state == "dead":
            claim(letter.attempts, f"{what}: it was never handed over")
        if state not in ("acked", "refused"):
            self._owe(letter, what)
        if undelivered == "kept":
            claim(not receipt["acks"], what)

    def _owe(self, letter: Letter, what: str) -> None:
        letter.is_owed = True
        claim(self.is_safe(letter), f"{what}: it is not safe")

    def is_safe(self, letter: Letter) -> bool:
        """Return whether a message is on the disk, or was accepted or refused."""
        if letter.number in self.disk or letter.number in self.dead:
            return True
        return letter.may_be_acked or letter.was_refused

    def check_owed(self) -> None:
        """Nothing that is owed may be lost."""
        for sent in self.open:  # its answer is on its way: it does not read, or is in a batch
            letter = sent.letter
            if letter.was_refused and letter.number not in self.disk:
                letter.is_refusal_told = True
        for letter in self.letters.values():
            if letter.is_owed:
                claim(self.is_safe(letter), f"{letter.number} to {letter.to} is lost")
            is_lost = letter.is_owed and letter.was_refused and not letter.may_be_acked
            if is_lost and letter.number not in self.disk:
                is_told = letter.is_refusal_told or letter.number in self.dead
                claim(is_told, f"nobody is told that {letter.number} was refused")

    def check_dead(self, awaited: set[int]) -> None:
        """What was acked is no dead letter once everybody has answered, and it is written.

        `awaited` is the mail that is in flight, or whose dead letter is yet to be deleted.
        """
        for number, dead in self.dead.items():
            is_acked = self.letters[number].acked_in == self.run
            claim(not is_acked or dead.mail.id in awaited, f"{number} was acked, and is dead")

    # What changes

    def crash(self) -> None:
        """The bus is gone; what it knew and had not written is forgotten."""
        self.open.clear()
        for letter in self.letters.values():
            if letter.acked_in == self.run and not letter.is_gone:
                letter.acked_in = 0
            letter.refused_in = 0
        self.run += 1


def _number_of(payload: bytes) -> int:
    number: int = json.loads(payload)["n"]
    return number


def msgspec_free(raw: bytes) -> dict[str, Any]:
    """Decode a receipt with another decoder than the bus has."""
    receipt: dict[str, Any] = json.loads(raw)
    return receipt
