"""What a chat receives: replies, events of agents at work, and messages of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from busd.chat.events import DeltaEvent, ErrorEvent, PromptEvent, StepEvent
from busd.chat.open_turns import OpenTurn
from busd.chat.screen import harmless_line
from busd.errors import BusdError, Refuse
from busd.ops.output import print_json
from busd.rpc.reading import Id
from busd.vocabulary.bub import AgentEvent, RouteAssigned, SpawnResult, TgMessage, TgReply
from busd.vocabulary.payload import read_message

if TYPE_CHECKING:
    from busd.chat.chat import TerminalChat
    from busd.client.incoming import Incoming


class Receiver:
    """Shows incoming messages, and ends the turns that they answer."""

    def __init__(self, chat: TerminalChat) -> None:
        self._chat = chat
        self._screen = chat.screen
        self._turns = chat.turns

    async def serve(self) -> None:
        """Handle messages one after the other, as long as the chat lasts."""
        async for message in self._chat.bus.messages():
            if self._chat.is_json:
                self._print(message.sender, message.message_id, message.raw)
            try:
                self._handle(message)
                await message.reply()  # now: it may be the last one we take
            except Refuse as refusal:
                self._screen.complain(f"{message.sender}: {refusal}")
                await message.fail(str(refusal))

    def handle_answer(self, turn: OpenTurn, sender: str, payload: Raw) -> None:
        """Handle a reply that came in the ack of a message."""
        if self._chat.is_json:
            self._print(sender, turn.message_id, payload)
        try:
            self._chat.end_turn(turn, read_message(payload, TgReply).text)
        except Refuse as refusal:
            self._chat.fail(turn, BusdError(harmless_line(f"{sender}: {refusal}")))

    def _print(self, sender: str, message_id: str, payload: Raw) -> None:
        me = self._chat.bus.client_id
        line = {"from": sender, "to": me, "messageId": message_id, "payload": payload}
        self._chat.console.write(lambda: print_json(line))

    def _handle(self, message: Incoming) -> None:
        """Show a message; raises Refuse if it cannot be read."""
        match message.type:
            case "tg_reply":
                self._handle_reply(read_message(message.raw, TgReply))
            case "agent_event":
                self._handle_event(read_message(message.raw, AgentEvent))
            case "route_assigned":
                agent = read_message(message.raw, RouteAssigned).agent_id
                self._screen.hint(f"{agent} answers")
            case "spawn_result":
                result = read_message(message.raw, SpawnResult)
                if not result.success:
                    self._screen.complain(str(result.error or "no agent could be started"))
            case "tg_message" if not self._chat.is_json:
                text = read_message(message.raw, TgMessage).text
                self._screen.show(f"[from:{message.sender}] {text}")
            case _:
                pass  # acknowledgements, and what is for other programs

    def _handle_reply(self, reply: TgReply) -> None:
        if reply.prompt_id:
            self._handle_question(reply, reply.prompt_id)
            return
        reply_to = str(reply.reply_to_message_id or "")
        if self._turns.has_ended(reply_to):
            return
        turn = self._turns.answered_by(reply_to)
        if turn is not None:
            self._turns.forget_before(turn)
            self._chat.end_turn(turn, reply.text)
        elif not self._chat.is_json and (self._chat.console.is_interactive or not reply_to):
            # A script gets only the answers to its own messages.
            if reply_to:
                self._screen.note("late answer to an earlier message:")
            self._screen.show(reply.text)

    def _handle_question(self, reply: TgReply, prompt_id: Id) -> None:
        """Show the plain text of a question, unless its `turn.prompt` has been shown already."""
        if self._chat.gets_events:
            return
        if not self._chat.is_json:
            self._screen.show(reply.text)
        self._turns.ask(PromptEvent(prompt_id))

    def _handle_event(self, event: AgentEvent) -> None:
        about = event.read(DeltaEvent)
        turn = self._turns.open.get(about.turn)
        match event.event:
            case "turn.delta" if turn is not None:
                turn.note_streamed(about.text)
                if not self._chat.is_json:
                    self._screen.stream(about.text)
            case "turn.step" if turn is not None and not self._chat.is_json:
                self._screen.note(event.read(StepEvent).line())
            case "turn.prompt" if not self._turns.has_ended(about.turn):
                prompt = event.read(PromptEvent)
                if not self._chat.is_json:
                    self._screen.show(prompt.question())
                self._turns.ask(prompt)
            case "turn.error" if not self._turns.has_ended(about.turn):
                line = harmless_line(event.read(ErrorEvent).line())
                self._chat.fail(turn, BusdError(line))
