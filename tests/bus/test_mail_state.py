"""The states of a message in a mailbox: the table of their transitions, walked."""

from __future__ import annotations

import re

import pytest

from busd.bus import mail_state
from busd.bus.delivery import DeliveryLimits
from busd.bus.mail_attempt import QueuedMail
from busd.bus.mail_policy import MailSettings
from busd.bus.mail_state import TRANSITIONS, MailState, after, initial_state
from tests.bus.mail.disk_bus import DURABLE, DiskBus

EVENTS = sorted({event for _, event in TRANSITIONS})
_ROW = re.compile(r"^\| ([A-Z, ]+) \| ([a-z_]+) \| ([A-Z]+) \|$", re.MULTILINE)
Transition = tuple[MailState, str]
# Those of operators have tests of their own; the first one is that of the store.
ELSEWHERE = {"written", "purged", "buried"}


def documented() -> dict[Transition, MailState]:
    """Read the table in the module's docstring."""
    return {
        (MailState[state], event): MailState[to]
        for states, event, to in _ROW.findall(mail_state.__doc__ or "")
        for state in states.split(", ")
    }


@pytest.mark.parametrize("state", MailState)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state_does_what_the_table_says(state: MailState, event: str) -> None:
    assert TRANSITIONS.get((state, event)) is documented().get((state, event))
    assert after(state, event) is documented().get((state, event), state)


def test_an_unknown_event_changes_nothing() -> None:
    assert [after(state, "nonsense") for state in MailState] == list(MailState)


def test_every_state_is_reached_from_the_beginning() -> None:
    reached = {MailState.ACCEPTED}
    for _ in MailState:
        reached |= {to for (state, _), to in TRANSITIONS.items() if state in reached}
    assert reached == set(MailState)


def test_from_every_state_that_is_not_final_a_final_one_is_reached() -> None:
    ends = {state for state in MailState if state.is_final}
    for _ in MailState:
        ends |= {state for (state, _), to in TRANSITIONS.items() if to in ends}
    assert ends == set(MailState)


@pytest.mark.parametrize("state", [state for state in MailState if state.is_final])
def test_a_final_state_is_left_only_by_a_late_ack(state: MailState) -> None:
    left_by = {event for before, event in TRANSITIONS if before is state}
    late = {MailState.EXPIRED, MailState.PURGED}
    assert left_by == ({"acked"} if state in late else set())


@pytest.mark.parametrize(
    ("attempts", "not_before", "state"), [(0, 0, "kept"), (1, 0, "unknown"), (2, 5, "retrying")]
)
def test_the_state_after_a_restart_is_that_on_record(
    attempts: int, not_before: float, state: str
) -> None:
    assert initial_state(attempts, not_before) == state


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[Transition, MailState]:
    """Record the transitions that the core makes, those that change nothing left out."""
    made: dict[Transition, MailState] = {}
    enter = QueuedMail.enter

    def recorded(self: QueuedMail, event: str) -> None:
        before = self.state
        enter(self, event)
        if self.state is not before:
            made[before, event] = self.state

    monkeypatch.setattr(QueuedMail, "enter", recorded)
    return made


def test_every_transition_is_reached_by_the_core(made: dict[Transition, MailState]) -> None:
    for answers in (
        ["ack"],
        ["refuse"],
        ["retry", "ack"],
        ["retry", "retry", "retry"],
        ["leave", "ack"],
        ["leave", "leave", "leave"],
        ["silence", "ack"],
        ["leave", "expire absent"],
        ["retry", "leave", "expire absent"],
        ["retry", "expire"],
        ["expire", "ack"],
        ["expire absent"],
    ):
        live(answers)
    wanted = {
        (state, event): to
        for (state, event), to in TRANSITIONS.items()
        if event not in ELSEWHERE and state is not MailState.PURGED
    }
    assert made == wanted


def live(answers: list[str]) -> None:
    """Send a message that is answered in these ways, one after the other."""
    disk_bus = DiskBus(
        MailSettings(max_attempts=3, ttl_seconds=100, ack_seconds=10),
        DeliveryLimits(ack_seconds=10),
    )
    disk_bus.join("tg:1").send("agent:w", {"n": 1}, delivery=DURABLE)
    disk_bus.settle()
    worker = None
    for answer in answers:
        if answer == "expire absent":
            disk_bus.advance(101)
            continue
        worker = worker or disk_bus.join("agent:w")
        if answer == "expire":
            disk_bus.wall_clock.now += 100
            disk_bus.advance(2)
            continue
        disk_bus.advance(0 if worker.inbox else 4)
        message = worker.next_message()
        if answer == "ack":
            message.ack()
        elif answer == "refuse":
            message.fail("never")
        elif answer == "retry":
            message.fail("later", retry_seconds=1)
        elif answer == "leave":
            worker.leave()
            worker = None
        else:
            disk_bus.advance(12)
        disk_bus.settle()
