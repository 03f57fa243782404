"""What a chat says: words, answers to questions, and that a turn is to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, UnsetType
from ulid import ULID

from busd.chat.screen import harmless_line
from busd.chat.turn import Prompt, Turn, cancel_of
from busd.errors import BusdError, ConnectionLost, NoAnswer, Refuse
from busd.rpc.reading import Id
from busd.vocabulary.bub import GeneralResponse, TgMessage
from busd.vocabulary.payload import read_message, type_of, write_message

if TYPE_CHECKING:
    from busd.bus.message import Ack, Receipt
    from busd.chat.chat import Chat


class Saying:
    """Sends what is typed, and looks at what became of it."""

    def __init__(self, chat: Chat, to: str) -> None:
        self._chat = chat
        self.to = to

    def say(self, text: str) -> None:
        """Begin a turn."""
        self._send_soon(self._chat.turns.begin(), self._words(text))

    def answer(self, prompt: Prompt, text: str) -> None:
        """Answer a question; the turn that asked it goes on."""
        if not text and prompt.required:
            self._chat.screen.note("it wants an answer")
            return
        self._chat.turns.answer()
        answer = Turn(f"msg_{ULID()}")  # not one to wait for
        self._send_soon(answer, self._words(prompt.chosen(text), prompt_id=prompt.id))

    async def cancel(self, turn: Turn) -> str:
        """Ask the agent to stop a turn; gives why there was nothing to stop, if that is so.

        Raises BusdError if it will not.
        """
        receipt = await self._chat.bus.send(self.to, cancel_of(turn, self._chat.bus.client_id))
        if not receipt.acks:
            return f"nobody is subscribed to {self.to}"
        if not any(ack.success for ack in receipt.acks):
            raise BusdError(f"it was not stopped: {receipt.acks[0].message}")
        return next((why for ack in receipt.acks if (why := _doubt_in(ack))), "")

    def _words(self, text: str, prompt_id: Id | UnsetType = UNSET) -> Raw:
        me = self._chat.bus.client_id
        said = TgMessage(text, senderId=me.partition(":")[2], channel="terminal")
        said.prompt_id = prompt_id
        return write_message(said, sender=me)

    def _send_soon(self, turn: Turn, payload: Raw) -> None:
        self._chat.start_soon(lambda: self._send(turn, payload))

    async def _send(self, turn: Turn, payload: Raw) -> None:
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
                self._take_receipt(turn, receipt)
            return

    def _take_receipt(self, turn: Turn, receipt: Receipt) -> None:
        """Look at what became of a message; some agents answer in the ack itself."""
        turn.is_acked = True
        turns, failed = self._chat.turns, [ack for ack in receipt.acks if not ack.success]
        if turns.has_ended(turn.message_id):
            return  # it was stopped, or answered before it was acked
        if receipt.undelivered is not UNSET or not receipt.acks:
            self._chat.fail(turn, BusdError(f"nobody is subscribed to {self.to}"))
        elif len(failed) == len(receipt.acks):
            kind = NoAnswer if all(ack.should_retry is True for ack in failed) else BusdError
            why = failed[0].message or "it failed"
            who = "" if failed[0].client_id is UNSET else f"{failed[0].client_id}: "
            self._chat.fail(turn, kind(harmless_line(f"{who}{why}")))
        for ack in receipt.acks:
            if ack.success and turn.message_id in turns.open and type_of(ack.payload) == "tg_reply":
                self._chat.hearing.take_answer(turn, str(ack.client_id), ack.payload)


def _doubt_in(ack: Ack) -> str:
    """Return what an agent says instead of that it stopped."""
    try:
        said = read_message(ack.payload, GeneralResponse).message or ""
    except Refuse:
        return ""  # it is not obliged to say anything
    return said if said.startswith("no such turn") else ""
