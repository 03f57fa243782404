"""What a chat sends: messages, answers to questions, and requests to cancel a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.chat.events import PromptEvent
from busd.chat.open_turns import OpenTurn
from busd.chat.screen import harmless_line
from busd.errors import BusdError, ConnectionLost, NoAnswer, Refuse
from busd.rpc.reading import Id
from busd.vocabulary.bub import AgentEvent, GeneralResponse, TgMessage
from busd.vocabulary.payload import read_message, type_of, write_message

if TYPE_CHECKING:
    from busd.bus.message import Ack, Receipt
    from busd.chat.chat import TerminalChat


class Sender:
    """Sends what is typed, and evaluates the receipts."""

    def __init__(self, chat: TerminalChat, to: str) -> None:
        self._chat = chat
        self.to = to

    def begin_turn(self, text: str) -> None:
        """Begin a turn."""
        self._send_soon(self._chat.turns.begin(), self._message(text))

    def answer(self, prompt: PromptEvent, text: str) -> None:
        """Answer a question; the turn that asked it goes on."""
        if not text and prompt.required:
            self._chat.screen.note("an answer is required")
            return
        self._chat.turns.prompt = None
        answer = OpenTurn()  # never begun: nobody waits for it
        self._send_soon(answer, self._message(prompt.chosen(text), prompt_id=prompt.id))

    async def cancel(self, turn: OpenTurn) -> str:
        """Ask the agent to stop a turn; return why there was nothing to stop, or "".

        Raise BusdError if the agent refuses.
        """
        data = Raw(msgspec.json.encode({"turn": turn.message_id}))
        payload = write_message(AgentEvent("turn.cancel", data), sender=self._chat.bus.client_id)
        receipt = await self._chat.bus.send(self.to, payload)
        if not receipt.acks:
            return f"nobody is subscribed to {self.to}"
        if not any(ack.success for ack in receipt.acks):
            raise BusdError(f"the turn was not stopped: {receipt.acks[0].message}")
        return next((why for ack in receipt.acks if (why := _why_not_stopped(ack))), "")

    def _message(self, text: str, prompt_id: Id | UnsetType = UNSET) -> Raw:
        me = self._chat.bus.client_id
        said = TgMessage(text, senderId=me.partition(":")[2], channel="terminal")
        said.prompt_id = prompt_id
        return write_message(said, sender=me)

    def _send_soon(self, turn: OpenTurn, payload: Raw) -> None:
        self._chat.start_soon(lambda: self._send(turn, payload))

    async def _send(self, turn: OpenTurn, payload: Raw) -> None:
        while True:
            try:
                receipt = await self._chat.bus.send(self.to, payload, message_id=turn.message_id)
            except ConnectionLost as lost:
                if not lost.maybe_delivered:
                    continue  # the client waits for the bus to come back
                self._chat.fail(turn, lost)
            except BusdError as problem:
                self._chat.fail(turn, problem)
            else:
                self._evaluate(turn, receipt)
            return

    def _evaluate(self, turn: OpenTurn, receipt: Receipt) -> None:
        """Evaluate the acks of a message; some agents answer in the ack itself."""
        turn.is_acked = True
        turns, failed = self._chat.turns, [ack for ack in receipt.acks if not ack.success]
        if turns.has_ended(turn.message_id):
            return  # stopped, or answered before it was acked
        if receipt.undelivered is not UNSET or not receipt.acks:
            self._chat.fail(turn, BusdError(f"nobody is subscribed to {self.to}"))
        elif len(failed) == len(receipt.acks):
            kind = NoAnswer if all(ack.should_retry is True for ack in failed) else BusdError
            why = failed[0].message or "it failed"
            who = "" if failed[0].client_id is UNSET else f"{failed[0].client_id}: "
            self._chat.fail(turn, kind(harmless_line(f"{who}{why}")))
        for ack in receipt.acks:
            if ack.success and turn.message_id in turns.open and type_of(ack.payload) == "tg_reply":
                self._chat.receiver.handle_answer(turn, str(ack.client_id), ack.payload)


def _why_not_stopped(ack: Ack) -> str:
    """Return the reason an agent gives for having stopped nothing."""
    try:
        said = read_message(ack.payload, GeneralResponse).message or ""
    except Refuse:
        return ""  # agents need not give one
    return said if said.startswith("no such turn") else ""
