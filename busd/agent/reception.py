"""What an agent does with each type of message that comes in.

All of it happens at once and in order: a message is acked when it is taken, and its turn waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from busd.agent.identity import SYSTEM
from busd.agent.ledger import Asked
from busd.agent.turn import Turn, TurnFailed
from busd.errors import Refuse
from busd.rpc.reading import Id
from busd.vocabulary.addresses import speaker_of
from busd.vocabulary.bub import AgentEvent, Configure, GeneralResponse, TgReply
from busd.vocabulary.payload import author_of, read_message, write_message

if TYPE_CHECKING:
    from busd.agent.agent import Agent
    from busd.client.incoming import Incoming

log = logging.getLogger("busd.agent")

_IGNORED = ("route_assigned", "spawn_result", "general_response")


class TurnCancel(msgspec.Struct):
    """The data of a `turn.cancel`; without a turn it means the one that runs.

    With a reason, which `agent:system` may give, it means all of them, and their users are told.
    """

    turn: Id | None = None
    reason: str = ""
    channel: str | None = None  # with the next one: the chat, if a bridge speaks for it
    chat_id: Id | None = None


def add_handlers(agent: Agent) -> None:
    """Register a handler with an agent's client for each message type that agents receive."""
    reception = Reception(agent)
    agent.client.on("tg_message")(reception.take_words)
    agent.client.on("tg_reply")(reception.hear)
    agent.client.on("configure")(reception.configure)
    agent.client.on("agent_event")(reception.take_event)
    for name in _IGNORED:
        agent.client.on(name)(reception.ignore)


class Reception:
    """The handlers; what they return is the ack's payload, what they refuse a failed ack."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def take_words(self, incoming: Incoming) -> Raw:
        """Handle a message: it answers a prompt, or gets a turn of its own."""
        agent = self._agent
        asked = Asked(incoming.message_id, incoming.sender, incoming.raw)
        if agent.ledger.knows(asked.key):
            return self._ok(incoming, "taken already")
        turn = Turn(agent, asked)
        if prompt := agent.prompts.find(turn):
            is_clear = prompt.settle(turn.message.text)
            agent.ledger.finish([asked.key])
            said = "answers a prompt" if is_clear else "not one of the options; asked again"
            return self._ok(incoming, said)
        return self._ok(incoming, agent.take(turn, asked))

    async def hear(self, incoming: Incoming) -> Raw:
        """Return a reply of somebody else to whoever listens; it never begins a turn."""
        reply = read_message(incoming.raw, TgReply)
        if self._agent.listener is not None:
            heard: Any = self._agent.listener(reply, author_of(incoming.sender, incoming.raw))
            if hasattr(heard, "__await__"):
                await heard
        return self._ok(incoming)

    async def configure(self, incoming: Incoming) -> Raw:
        """Change whom we talk to and what is set; strangers may not take our words away.

        The change holds at once, before the next message. What did not come from `agent:system` is
        reported to it, because it owns the settings of the agents that the bus starts.
        """
        author, talkto = author_of(incoming.sender, incoming.raw), self._agent.talkto
        is_free = not talkto and not author.startswith("agent:")
        if not is_free and author not in (talkto, SYSTEM, self._agent.client_id):
            raise Refuse(f"configure: only {talkto or 'a chat'} and agent:system may do that")
        wanted = read_message(incoming.raw, Configure)
        self._agent.session.change(wanted)
        if author != SYSTEM:
            await self._agent.report_configured(wanted)
        return self._ok(incoming)

    async def take_event(self, incoming: Incoming) -> Raw:
        """Cancel a turn if that is what is said; other events are only heard."""
        event = read_message(incoming.raw, AgentEvent)
        if event.event != "turn.cancel":
            return self._ok(incoming)
        wanted = event.read(TurnCancel)
        author = speaker_of(incoming.sender, incoming.raw, wanted.channel, wanted.chat_id)
        if wanted.reason and author == SYSTEM:
            return self._ok(incoming, await self._stop_all(wanted.reason))
        named = self._named(wanted.turn)
        for turn in named:
            if turn.may_be_cancelled_by(author):
                turn.cancel()
                return self._ok(incoming, "cancelled")
        if named:
            raise Refuse("turn.cancel: the turn is somebody else's")
        return self._ok(incoming, "no such turn, or it is over")

    async def _stop_all(self, reason: str) -> str:
        """End all turns, and come back when their users have been told."""
        turns = self._agent.turns.all()
        for turn in turns:
            self._agent.ledger.finish(turn.keys)  # a later run must not begin with it
            turn.stop(TurnFailed(reason, code="stopped"))
        for turn in turns:
            await turn.ended.wait()
        return f"{len(turns)} cancelled"

    def _named(self, wanted: Id | None) -> list[Turn]:
        """Return the turns that may be meant: senders choose their ids, so two may be alike."""
        turns = self._agent.turns
        if wanted is None:
            return turns.all()[:1] if turns.running else []
        return [turn for turn in turns.all() if wanted in (turn.reply_to, *turn.message_ids)]

    def ignore(self, incoming: Incoming) -> Raw:
        return self._ok(incoming)

    def _ok(self, incoming: Incoming, words: str = "") -> Raw:
        answer = GeneralResponse("ok", words or UNSET, incoming.message_id)
        return write_message(answer, sender=self._agent.client_id)
