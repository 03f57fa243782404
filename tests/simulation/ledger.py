"""The ledger: every message, what became of it, and the invariants that the bus must keep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from busd.testing import Handed
from tests.simulation.actor import Actor, Asked, Fate, Group
from tests.simulation.oracle import BUSY, LATE, LEFT, LEFT_OUT, Ack, left_out


class InvariantBroken(AssertionError):
    """The bus did what it must never do."""


def claim(is_so: object, said: str) -> None:
    if not is_so:
        raise InvariantBroken(said)


@dataclass(eq=False)
class Record:
    """One message that the bus accepted."""

    number: int
    sender: Actor
    speaks_as: str
    to: str
    message_id: str | None  # None: the bus makes one
    payload: bytes
    deadline: float
    fates: dict[Actor, Fate]  # of everyone that matched when it was sent
    maybe: set[Actor] = field(default_factory=set)  # closed by the bus in that very moment
    is_in_batch: bool = False  # its receipt shares a frame with other answers
    is_answered: bool = False

    @property
    def is_settled(self) -> bool:
        """True when no addressee is waited for any more, so that the answer must be there."""
        return all(
            fate.may_be and (fate.is_sure or actor.has_left or "late" in fate.may_be)
            for actor, fate in self.fates.items()
        )


class Ledger:
    """All messages of one run."""

    def __init__(self, now: Callable[[], float], max_ack_bytes: int) -> None:
        self._now = now
        self._max_ack_bytes = max_ack_bytes
        self.records: dict[int, Record] = {}
        self._running: dict[int, Record] = {}  # those whose time is not up
        self.outcomes: Counter[str] = Counter()  # how often what happened: is the run worth much?

    def add(self, record: Record) -> None:
        self.records[record.number] = self._running[record.number] = record

    # What the peers see

    def hand(self, actor: Actor, call: Handed) -> None:
        """A peer was handed a message."""
        number = call.payload["n"]
        record = self.records[number]
        claim(actor in record.fates, f"{actor} was handed {number}, which it did not match")
        claim(number not in actor.seen, f"{actor} was handed {number} twice")
        claim(number not in actor.refused, f"{actor} was handed {number} though it was busy")
        claim(call.raw_payload == record.payload, f"the payload of {number} was changed")
        claim((call.sender, call.to) == (record.speaks_as, record.to), f"{number} was readdressed")
        self._same_id(record, call.message_id)
        last = actor.last_from.get(record.sender.uid, 0)
        claim(last < number, f"{actor} was handed {number} of {record.sender} after {last}")
        actor.last_from[record.sender.uid] = number
        actor.seen[number] = call
        actor.todo.append(number)
        fate = record.fates[actor]
        if not fate.is_sure:
            fate.is_sure = True
            fate.may_be.discard("busy")
            if record.deadline > self._now() and not actor.has_left:
                actor.pending[number] = record.deadline
                fate.may_be.clear()
        claim("busy" not in fate.may_be, f"{actor} was handed {number} over its limit")

    def _same_id(self, record: Record, message_id: str) -> None:
        claim(message_id == record.message_id or record.message_id is None, "another messageId")
        claim(record.message_id or message_id.startswith("msg_"), "a messageId that is not ours")
        record.message_id = message_id

    def answered(self, actor: Actor, frame: bytes) -> None:
        """A peer got an answer: it must be to something it asked, and be what it ought to be."""
        reply = json.loads(frame)
        replies = reply if isinstance(reply, list) else [reply]
        group = _find_group(actor, replies)
        if group is None:
            raise InvariantBroken(f"{actor} got an answer that it did not wait for: {frame!r}")
        claim(group.is_batch == (frame[:1] == b"["), f"a batch is answered by an array: {frame!r}")
        actor.groups.remove(group)
        waiting = list(group.asked)
        for reply in replies:
            asked = next(each for each in waiting if _names(each, reply))
            waiting.remove(asked)
            asked.check(reply)

    # What the answers must be

    def check_receipt(self, record: Record, reply: dict[str, Any]) -> None:
        """The answer to an accepted `sendMessage`: one fitting ack for each addressee."""
        claim("result" in reply, f"{record.number} was accepted, then: {reply}")
        receipt = reply["result"]
        claim(not record.is_answered, f"{record.number} was answered twice")
        record.is_answered = True
        self._same_id(record, receipt["messageId"])
        claim(receipt["accepted"] is True, f"{record.number} was not accepted")
        acks: list[Ack] = receipt["acks"]
        if not record.fates:
            claim(receipt.get("undelivered") == "no route", f"{record.number} went nowhere")
            self.outcomes["no route"] += 1
        left_out_count = receipt.get("acksLeftOut", 0)
        claim(record.is_in_batch or not left_out_count, f"{record.number}: acks were left out")
        self.outcomes["acks left out"] += left_out_count
        got = Counter(ack["clientId"] for ack in acks)
        must = Counter(actor.name for actor in record.fates if actor not in record.maybe)
        may = Counter(actor.name for actor in record.fates)
        claim(
            got <= may and (must - got).total() <= left_out_count <= (may - got).total(),
            f"{record.number} to {dict(may)} was answered by {dict(got)}: {acks}",
        )
        self.outcomes["fan-out"] += len(acks) > 1
        self.outcomes["to a name that two have"] += any(n > 1 for n in got.values())
        self.outcomes["answer after the sender's end"] += record.sender.has_left
        self.outcomes.update(_kind(ack) for ack in acks)
        for name in got:
            self._explain(record, [ack for ack in acks if ack["clientId"] == name], name)
        if len(acks) > 1:
            size = sum(len(json.dumps(a["payload"], separators=(",", ":"))) for a in acks)
            empty = 2 * len(acks)
            claim(size <= self._max_ack_bytes + empty, f"{record.number}: {size} bytes of acks")

    def _explain(self, record: Record, acks: list[Ack], name: str) -> None:
        """Find for each ack a peer of that name whose ack it can be."""
        actors = [actor for actor in record.fates if actor.name == name]
        for order in permutations(actors, len(acks)):
            if all(self._fits(record, a, ack) for a, ack in zip(order, acks, strict=True)):
                break
        else:
            fates = {actor: record.fates[actor].may_be for actor in actors}
            raise InvariantBroken(f"{record.number}: {acks} cannot be, should be {fates}")
        if (
            len(actors) == 1
            and not record.fates[actors[0]].is_sure
            and acks
            and acks[0].get("outcome") == "busy"
        ):
            actors[0].refused.add(record.number)

    def _fits(self, record: Record, actor: Actor, ack: Ack) -> bool:
        fate = record.fates[actor]
        kinds = {"busy": BUSY, "left": LEFT, "late": LATE, "ack": fate.ack}
        for kind in fate.may_be:
            wanted = kinds[kind] | {"clientId": actor.name}
            if ack == wanted:
                return True
            may_be_short = len(record.fates) > 1 or record.is_in_batch
            if kind == "ack" and may_be_short and ack == left_out(wanted):
                return True
        return False

    # What changes fates

    def answer(self, actor: Actor, number: int, ack: Ack) -> None:
        """A peer answers a message; only its first answer in time counts."""
        if number in actor.pending and actor.is_member:
            del actor.pending[number]
            fate = self.records[number].fates[actor]
            fate.may_be, fate.ack = {"ack"}, ack

    def leave(self, actor: Actor, *, just_expired: frozenset[int] = frozenset()) -> None:
        """A peer is no longer on the bus; what has just been late may have been left before."""
        if actor.has_left:
            return
        actor.has_left = True
        for number in actor.pending:
            self.records[number].fates[actor].may_be = {"left"}
        actor.pending.clear()
        for record in self._running.values():
            fate = record.fates.get(actor)
            if fate is not None and not fate.is_sure:
                fate.may_be.add("left")
        for number in just_expired:
            fate = self.records[number].fates.get(actor)
            if fate is not None and "late" in fate.may_be:
                fate.may_be.add("left")

    def expire(self) -> frozenset[int]:
        """Time has passed: what is not answered by now is late. Gives the numbers of those."""
        now = self._now()
        expired = [n for n, record in self._running.items() if record.deadline <= now]
        for number in expired:
            for actor, fate in self._running.pop(number).fates.items():
                if actor.pending.pop(number, None) is not None:
                    fate.may_be = {"late"}
                elif not fate.is_sure:
                    fate.may_be.add("late")
        return frozenset(expired)


def _kind(ack: Ack) -> str:
    """Sort an ack: by its outcome if the bus made it, else by success or failure."""
    if ack["message"].removesuffix(")").endswith(LEFT_OUT):
        return LEFT_OUT
    return str(ack.get("outcome", f"success {ack['success']}"))


def _find_group(actor: Actor, replies: list[dict[str, Any]]) -> Group | None:
    """Find the group whose requests are answered by just these replies."""
    ids = Counter(repr(reply.get("id")) for reply in replies)
    for group in actor.groups:
        if Counter(repr(each.request_id) for each in group.asked) == ids:
            return group
    return None


def _names(asked: Asked, reply: dict[str, Any]) -> bool:
    return repr(asked.request_id) == repr(reply.get("id"))
