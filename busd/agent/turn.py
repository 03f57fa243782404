"""A turn: one message, and everything that its agent says until it is answered."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.agent.ledger import Asked
from busd.agent.prompt import OpenPrompt, TurnPrompt
from busd.errors import BusdError
from busd.rpc.reading import Id
from busd.vocabulary.addresses import event_address, speaker_of
from busd.vocabulary.bub import TgMessage, TgReply
from busd.vocabulary.payload import decode_payload, read_message

if TYPE_CHECKING:
    from busd.agent.agent import Agent

StepStatus = Literal["in_progress", "complete", "failed"]
_FAREWELL_SECONDS = 5.0
_encode = msgspec.json.Encoder().encode


class TurnFailed(BusdError):
    """Raised by a handler: the turn is over, and its user is told this very text."""

    def __init__(self, message: str, *, code: str = "worker_failed") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Turn:
    """One message that an agent answers.

    `message` is what was written, `text` the same for the model: with `[from:SENDER] ` before it
    if it comes from anyone but the one the agent talks to.
    """

    def __init__(self, agent: Agent, asked: Asked) -> None:
        """Read a message; raise Refuse if it is no `tg_message`."""
        self.agent = agent
        self.message: TgMessage = read_message(asked.payload, TgMessage)
        self.message_id = asked.message_id
        self.keys = [asked.key]  # more than one if messages were merged
        self.sender = speaker_of(
            asked.sender, asked.payload, self.message.channel, self.message.chat_id
        )
        # The id by which whoever wrote it knows the message: the payload's own, if it has one.
        self.reply_to: Id = decode_payload(asked.payload).message_id or asked.message_id
        self.is_over = False
        self.has_answered = False  # its handler is done, and its reply on the way
        self.failure: TurnFailed | None = None  # why it was ended from outside
        self.ended = anyio.Event()
        self.scope = anyio.CancelScope()
        self.deliveries: set[anyio.CancelScope] = set()  # of replies that are on the way
        self._replies = 0
        self._steps = 0

    def __repr__(self) -> str:
        return f"<Turn {self.message_id} of {self.sender}>"

    @property
    def text(self) -> str:
        """What was written, as the model reads it."""
        if self.agent.talkto and not self.is_own:
            return f"[from:{self.sender}] {self.message.text}"
        return self.message.text

    @property
    def is_own(self) -> bool:
        """It was written by the one whom the agent talks to."""
        return self.agent.talkto == self.sender

    @property
    def is_ending(self) -> bool:
        """Nothing more is to be decided about it: it is over, or only its reply is on the way."""
        return self.is_over or self.has_answered

    @property
    def talkto(self) -> str:
        """Where the replies of this turn go; its events go to `events:` and this address."""
        return self.agent.talkto or self.sender

    def is_of_sender(self, sender: str) -> bool:
        return self.sender == sender

    def may_be_answered_by(self, words: Turn) -> bool:
        """Return whether a message comes from whom this turn's prompts are put to."""
        return words.is_own if self.agent.talkto else words.sender == self.sender

    @property
    def message_ids(self) -> list[str]:
        """The ids of the messages that it answers."""
        return [key.message_id for key in self.keys]

    def may_be_cancelled_by(self, author: str) -> bool:
        return author in (self.talkto, self.sender, "agent:system")

    # What a handler says

    async def delta(self, text: str) -> None:
        """Show a piece of the answer while it is made; the whole goes into the reply."""
        if text:
            await self._tell("turn.delta", {"turn": self.reply_to, "text": text})

    def step(
        self,
        name: str,
        *,
        tool: str = "",
        arguments: Any = None,
        payload: Any = "",
        parent: Step | None = None,
    ) -> Step:
        """Return a step to be entered with `async with`: shown as begun, then as done or failed."""
        self._steps += 1
        about: dict[str, Any] = {"id": f"{self.message_id}.step.{self._steps}", "name": name}
        if parent is not None:
            about["parent"] = parent.id
        if tool:
            about["tool"] = tool
        if arguments is not None:
            about["arguments"] = arguments
        return Step(self, about, payload)

    async def ask(
        self,
        text: str,
        *,
        options: list[str] | None = None,
        input_type: str = "",
        placeholder: str = "",
        required: bool = True,
        timeout_seconds: float | None = None,
    ) -> str:
        """Ask the user and return the answer; raises TurnFailed if none comes in time.

        With options the answer is one of them, exactly as given here: the user may type its text
        in upper or lower case, its number or how it alone begins. Anything else asks again. With
        the input type checkbox the user may choose several; the answer has one per line.
        """
        self._steps += 1
        kinds = {0: "text", 2: "binary_choice"}
        prompt = TurnPrompt(
            turn=self.reply_to,
            id=f"{self.message_id}.prompt.{self._steps}",
            input_type=input_type or kinds.get(len(options or []), "radio"),
            text=text,
            required=required,
            options=options or [],
            placeholder=placeholder,
            timeout_seconds=timeout_seconds,
        )
        # Open before it is sent: a quick user answers before the bus says that it has it.
        self.agent.prompts.open[prompt.id] = opened = OpenPrompt(self, prompt)
        try:
            with anyio.move_on_after(timeout_seconds):
                while True:
                    await self._put(opened)
                    if (answer := await opened.wait()) is not None:
                        return answer
        finally:
            del self.agent.prompts.open[prompt.id]
        raise TurnFailed("nobody answered the question in time", code="prompt_timeout")

    async def _put(self, opened: OpenPrompt) -> None:
        """Send a question in both ways: as an event, and as a reply that everybody can show."""
        prompt = opened.next_prompt()
        await self._tell("turn.prompt", prompt)
        number = "" if opened.times == 1 else f".{opened.times}"
        await self._send_reply(prompt.plain_text(), f"{prompt.id}.reply{number}", prompt.id)

    async def reply(self, text: str) -> None:
        """Answer; what a handler returns is replied by itself."""
        self._replies += 1
        number = "" if self._replies == 1 else f".{self._replies}"
        await self._send_reply(text, f"{self.message_id}.reply{number}")

    async def _send_reply(
        self, text: str, message_id: str, prompt_id: str | UnsetType = UNSET
    ) -> None:
        if self.is_over:
            return
        reply = TgReply(text, reply_to_message_id=self.reply_to, chat_id=self._chat_id())
        channel = self.agent.reply_type or self.message.channel
        if channel:
            reply.channel = channel
        reply.prompt_id = prompt_id
        await self.agent.send_reply(self, reply, message_id)

    def _chat_id(self) -> Id:
        """Return the chat that the reply is for: the one it came from, else that of `talkto`."""
        said = self.message.chat_id
        if said and (self.is_own or not self.agent.talkto):
            return said
        return self.talkto.partition(":")[2] or self.talkto

    async def fail(self, code: str, message: str) -> None:
        """Report the failure as an event and as a reply, for clients that know only replies."""
        await self._tell("turn.error", {"turn": self.reply_to, "code": code, "message": message})
        self.has_answered = True
        await self.reply(f"Sorry, that failed: {message}")

    async def _tell(self, event: str, data: Any) -> None:
        # Nothing of a turn that was cancelled leaves any more, whoever still runs for it.
        if not self.is_over:
            await self.agent.tell(event_address(self.talkto), event, Raw(_encode(data)))

    # What the agent does with it

    def cancel(self) -> None:
        """End it here and now: not one more word of it leaves."""
        self.is_over = True
        for scope in (self.scope, *self.deliveries):
            scope.cancel()

    def stop(self, failure: TurnFailed) -> None:
        """End its work; its user is told why."""
        self.failure = failure
        self.scope.cancel()

    def absorb(self, earlier: Turn) -> None:
        """Merge an earlier message into this one."""
        self.message.text = f"{earlier.message.text}\n{self.message.text}"
        self.keys = [*earlier.keys, *self.keys]


class Step:
    """A part of a turn that is shown as such; `payload` may be set until it ends."""

    def __init__(self, turn: Turn, about: dict[str, Any], payload: Any) -> None:
        self.id: str = about["id"]
        self.payload = payload
        self._turn = turn
        self._about = about

    async def __aenter__(self) -> Step:
        await self._show("in_progress")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is None:
            await self._show("complete")
        else:
            with anyio.move_on_after(_FAREWELL_SECONDS, shield=True):
                await self._show("failed")

    async def _show(self, status: StepStatus) -> None:
        data = {"turn": self._turn.reply_to, **self._about}
        await self._turn._tell("turn.step", {**data, "payload": self.payload, "status": status})
