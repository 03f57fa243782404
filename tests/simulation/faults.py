"""Faults to plant in the real core, one at a time: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET, Raw

from busd.bus.bus import Bus
from busd.bus.delivery import Delivery, FanOut
from busd.bus.message import Ack, Message, Outcome
from busd.bus.peer import RemotePeer
from busd.bus.routes import Routes
from busd.rpc.endpoint import Batch, Endpoint
from busd.wire.connection import Connection

Plant = Callable[[pytest.MonkeyPatch], None]


def answers_twice(patch: pytest.MonkeyPatch) -> None:
    settle = Delivery.settle

    def twice(self: Delivery, peer: Any, ack: Ack) -> None:
        settle(self, peer, ack)
        settle(self, peer, ack)

    patch.setattr(Delivery, "settle", twice)


def takes_answers_from_anyone(patch: pytest.MonkeyPatch) -> None:
    receive = RemotePeer.receive

    def from_anyone(self: RemotePeer, frame: bytes, asker: Any = None) -> None:
        own = self.calls
        self.calls = {k: v for peer in self.bus.peers for k, v in peer.calls.items()} | own
        borrowed = set(self.calls)
        receive(self, frame, asker)
        for call_id in borrowed - set(self.calls):
            for peer in self.bus.peers:
                peer.calls.pop(call_id, None)
            own.pop(call_id, None)
        self.calls = own | {k: v for k, v in self.calls.items() if k not in borrowed}

    patch.setattr(RemotePeer, "receive", from_anyone)


def forgets_those_who_wait_for_a_leaver(patch: pytest.MonkeyPatch) -> None:
    leave = Bus.leave

    def forgetful(self: Bus, peer: RemotePeer, reason: str) -> None:
        peer.calls.clear()
        leave(self, peer, reason)

    patch.setattr(Bus, "leave", forgetful)


def never_gives_up_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bus, "sweep", lambda self: None)


def gives_up_waiting_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bus, "sweep", lambda self: self.give_up(Outcome.TIMEOUT))


def keeps_stale_routes(patch: pytest.MonkeyPatch) -> None:
    remove = Routes.remove

    def stale(self: Routes, pattern: str, peer: Any) -> None:
        remembered = dict(self.remembered)
        remove(self, pattern, peer)
        self.remembered = remembered

    patch.setattr(Routes, "remove", stale)


def overlooks_new_globs(patch: pytest.MonkeyPatch) -> None:
    add = Routes.add

    def overlooking(self: Routes, pattern: str, peer: Any) -> None:
        remembered = dict(self.remembered)
        add(self, pattern, peer)
        self.remembered = remembered

    patch.setattr(Routes, "add", overlooking)


def hands_over_in_another_order(patch: pytest.MonkeyPatch) -> None:
    hand_over = RemotePeer.hand_over

    def jumping_the_queue(
        self: RemotePeer, message: Message, frame: bytes, delivery: Delivery
    ) -> None:
        hand_over(self, message, frame, delivery)
        self.connection.out.sort(reverse=True)

    patch.setattr(RemotePeer, "hand_over", jumping_the_queue)


def hands_over_twice(patch: pytest.MonkeyPatch) -> None:
    hand_over = RemotePeer.hand_over

    def twice(self: RemotePeer, message: Message, frame: bytes, delivery: Delivery) -> None:
        hand_over(self, message, frame, delivery)
        self.connection.send(frame)

    patch.setattr(RemotePeer, "hand_over", twice)


def hands_over_to_the_busy(patch: pytest.MonkeyPatch) -> None:
    def regardless(self: RemotePeer, message: Message, frame: bytes, delivery: Delivery) -> None:
        self.calls[delivery.call_id] = delivery
        self.connection.send(frame)

    patch.setattr(RemotePeer, "hand_over", regardless)


def answers_notifications(patch: pytest.MonkeyPatch) -> None:
    answer = Endpoint.answer

    def always(self: Endpoint[Any, Any], request_id: Any, result: Any) -> None:
        answer(self, None if request_id is UNSET else request_id, result)

    patch.setattr(Endpoint, "answer", always)


def miscounts_held_bytes(patch: pytest.MonkeyPatch) -> None:
    hold = FanOut._hold

    def twice(self: FanOut, ack: Ack) -> None:
        hold(self, ack)
        self.held.count += 1

    patch.setattr(FanOut, "_hold", twice)


def charges_for_answered_messages(patch: pytest.MonkeyPatch) -> None:
    settle = Delivery.settle

    def charging(self: Delivery, peer: Any, ack: Ack) -> None:
        settle(self, peer, ack)
        self.allowance.left -= 1

    patch.setattr(Delivery, "settle", charging)


def forgets_what_a_leaver_was_charged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemotePeer, "release", lambda self: None)


def never_works_off_departures(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bus, "work", lambda self: False)


def changes_payloads(patch: pytest.MonkeyPatch) -> None:
    deliver = Bus.deliver

    def changing(self: Bus, message: Message, asker: Any, request_id: Any, sender: Any) -> None:
        message.payload = Raw(bytes(message.payload).replace(b" ", b""))
        deliver(self, message, asker, request_id, sender)

    patch.setattr(Bus, "deliver", changing)


def loses_the_last_answer_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    add = Batch.add

    def short(self: Batch, answer: bytes) -> None:
        if len(self._answers) == self._expected - 2:
            self._expected -= 1
        add(self, answer)

    patch.setattr(Batch, "add", short)


def drops_the_half_closed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bus, "owes_answer", lambda self, peer: False)


def keeps_the_half_closed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bus, "owes_answer", lambda self, peer: True)


def lets_unread_bytes_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connection, "pause_writing", lambda self: None)


def keeps_subscriptions_of_the_gone(patch: pytest.MonkeyPatch) -> None:
    leave = Bus.leave

    def careless(self: Bus, peer: RemotePeer, reason: str) -> None:
        peer.subscriptions = {peer.name} & peer.subscriptions
        leave(self, peer, reason)

    patch.setattr(Bus, "leave", careless)


FAULTS: list[Plant] = [
    answers_twice,
    takes_answers_from_anyone,
    forgets_those_who_wait_for_a_leaver,
    never_gives_up_waiting,
    gives_up_waiting_too_early,
    keeps_stale_routes,
    overlooks_new_globs,
    hands_over_in_another_order,
    hands_over_twice,
    hands_over_to_the_busy,
    answers_notifications,
    miscounts_held_bytes,
    charges_for_answered_messages,
    forgets_what_a_leaver_was_charged,
    never_works_off_departures,
    changes_payloads,
    loses_the_last_answer_of_a_batch,
    drops_the_half_closed,
    keeps_the_half_closed,
    lets_unread_bytes_grow,
    keeps_subscriptions_of_the_gone,
]
