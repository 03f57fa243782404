"""Turns: what an agent makes of a user's words, as a state machine.

| state | meaning |
| --- | --- |
| WAITING | the words are kept; the bus has not accepted them yet |
| ASKED | the bus has accepted them |
| WORKING | the agent has shown a sign |
| PROMPTING | a prompt is open; the agent waits for the user |
| OVERDUE | a prompt was not answered in time; the agent is about to say that the turn has failed |
| REPLIED, FAILED, CANCELLED | the turn has ended |

| from | event | to |
| --- | --- | --- |
| WAITING | accepted | ASKED |
| WAITING, ASKED, WORKING, OVERDUE | signed: a delta or a step | WORKING |
| WAITING, ASKED, WORKING, PROMPTING, OVERDUE | prompted | PROMPTING |
| PROMPTING | settled: no prompt is open any more | WORKING |
| PROMPTING | lapsed: time is up for the last prompt | OVERDUE |
| WAITING, ASKED, WORKING, PROMPTING, OVERDUE | replied | REPLIED |
| WAITING, ASKED, WORKING, PROMPTING, OVERDUE | failed: by the agent | FAILED |
| WAITING, ASKED, WORKING, PROMPTING, OVERDUE | refused: by the bus, or by a failed ack | FAILED |
| WAITING, ASKED, WORKING, PROMPTING, OVERDUE | cancelled | CANCELLED |
| ASKED, WORKING, OVERDUE | timed_out: no sign for too long | FAILED |

Any other event leaves the state as it is. While the words wait for the bus, and while the agent
waits for the user, no time is up.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import structlog

from busd.gateway.conversation import Author, Turn
from busd.gateway.stored import OpenTurn

if TYPE_CHECKING:
    from busd.gateway.session import Session

log = structlog.get_logger("busd.gateway")

AGENT_PREFIX = "agent:"
# It speaks for agents whose workers have failed or are not started yet.
SYSTEM = "agent:system"
MAX_TEXT_CHARACTERS = 256 * 1024  # of an answer while it is made; a reply may be longer


class TurnState(StrEnum):
    """Where a turn is in its life."""

    WAITING = "waiting"
    ASKED = "asked"
    WORKING = "working"
    PROMPTING = "prompting"
    OVERDUE = "overdue"
    REPLIED = "replied"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TurnEvent(StrEnum):
    """What happens to a turn."""

    ACCEPTED = "accepted"
    SIGNED = "signed"
    PROMPTED = "prompted"
    SETTLED = "settled"
    LAPSED = "lapsed"
    REPLIED = "replied"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


_S, _E = TurnState, TurnEvent
OPEN = (_S.WAITING, _S.ASKED, _S.WORKING, _S.PROMPTING, _S.OVERDUE)
TRANSITIONS: dict[tuple[TurnState, TurnEvent], TurnState] = {
    (_S.WAITING, _E.ACCEPTED): _S.ASKED,
    **{(state, _E.SIGNED): _S.WORKING for state in OPEN if state is not _S.PROMPTING},
    **{(state, _E.PROMPTED): _S.PROMPTING for state in OPEN},
    (_S.PROMPTING, _E.SETTLED): _S.WORKING,
    (_S.PROMPTING, _E.LAPSED): _S.OVERDUE,
    **{(state, _E.REPLIED): _S.REPLIED for state in OPEN},
    **{(state, _E.FAILED): _S.FAILED for state in OPEN},
    **{(state, _E.REFUSED): _S.FAILED for state in OPEN},
    **{(state, _E.CANCELLED): _S.CANCELLED for state in OPEN},
    **{(state, _E.TIMED_OUT): _S.FAILED for state in (_S.ASKED, _S.WORKING, _S.OVERDUE)},
}
TurnKey = tuple[str, int]  # the id of the words, and the position of the agent among theirs


class RunningTurn:
    """A turn that is held in memory; `shown` is what clients know of it."""

    def __init__(
        self,
        shown: Turn,
        slot: int,
        to: str,
        now: float,
        *,
        state: TurnState = TurnState.WAITING,
        session: Session | None = None,
    ) -> None:
        self.shown = shown
        self.slot = slot
        self.to = to  # the address that got the words
        self.message_id = ""  # of the message that has brought them there
        self.address = to  # of the agent itself, as soon as it is known
        self.state = state
        self.session = session  # the client that began it
        self.prompts: set[str] = set()  # those that are open
        self.asked: dict[str, int] = {}  # prompts, by which connection to the bus each came last
        self.since = now  # the last sign of the agent, or the last change

    def __repr__(self) -> str:
        return f"<turn {self.shown.id}.{self.slot} {self.state}>"

    @property
    def key(self) -> TurnKey:
        return self.shown.id, self.slot

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def advance(self, event: TurnEvent, now: float) -> bool:
        """Change the state by an event; return False if the event means nothing in this state."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            return False
        if after is not self.state:
            log.debug("turn.moved", turn=self.shown.id, state=str(after), by=str(event))
        self.state = after
        self.since = now
        return True

    def is_due(self, now: float, turn_seconds: float, grace_seconds: float) -> bool:
        """Return whether its agent has been silent for too long."""
        match self.state:
            case TurnState.ASKED | TurnState.WORKING:
                return now >= self.since + turn_seconds
            case TurnState.OVERDUE:
                return now >= self.since + grace_seconds
        return False

    def is_named(self, turn_id: str) -> bool:
        """Return whether an agent means this turn: by the id of the words, or of their message."""
        return turn_id in (self.shown.id, self.message_id)

    def may_come_from(self, sender: str) -> bool:
        """Return whether a peer may speak for the agent of this turn."""
        if sender in (self.to, self.address, SYSTEM):
            return True
        # Words without an addressee go to whoever finds an agent for them (`system:route`).
        return not self.to.startswith(AGENT_PREFIX) and self.address == self.to

    def note_agent(self, sender: str) -> None:
        """Record which agent answers, at its first sign."""
        if self.address == self.to and sender.startswith(AGENT_PREFIX) and sender != SYSTEM:
            self.address = sender
            if not self.shown.agent.id:
                self.shown.agent = agent_author(sender)

    def add_text(self, text: str) -> bool:
        """Add a part of the answer; return False if the answer is too long to be shown in parts."""
        if len(self.shown.text) + len(text) > MAX_TEXT_CHARACTERS:
            return False
        self.shown.text += text
        return True

    def stored(self, now: float) -> OpenTurn:
        """Return what the store keeps of it."""
        return OpenTurn(
            turn=self.shown,
            slot=self.slot,
            to=self.to,
            message_id=self.message_id,
            last_sign=now,
        )


def agent_author(address: str) -> Author:
    """Return a peer of the bus as an author."""
    return Author(address.removeprefix(AGENT_PREFIX), "agent")
