"""Live turns: what is known of an answer while an agent works on it."""

from __future__ import annotations

from copy import copy

import msgspec

from busd.bridge.messages import Inbound
from busd.vocabulary.turn_events import InputType, Option, TurnError, TurnPrompt, TurnStep

MAX_TEXT_BYTES = 256 * 1024
MAX_STEPS = 200
MAX_PROMPT_BYTES = 16 * 1024  # a larger prompt or error is posted as text
MAX_STEP_BYTES = 4 * 1024  # a larger step has no arguments and payload


class LivePrompt(msgspec.Struct):
    """A question of an agent. A user answers with an `Inbound` that has its id as `prompt_id`.

    `show` sets `external_id` when it has shown the prompt; else its plain text is posted as a
    reply.
    """

    id: str
    text: str
    input_type: InputType = "text"
    options: tuple[Option, ...] = ()
    placeholder: str = ""
    required: bool = True
    external_id: str = ""


class LiveError(msgspec.Struct):
    """Why a turn has failed.

    `show` sets `external_id` when it has shown the error; else its plain text is posted as a reply.
    """

    code: str
    message: str
    external_id: str = ""


class LiveTurn:
    """A turn from the user's message to the reply.

    `show` gets a snapshot; what it sets of `draft`, `prompt` and `error` is kept.
    """

    def __init__(self, chat_id: str, turn: str, inbound: Inbound | None = None) -> None:
        self.chat_id = chat_id
        self.turn = turn  # the message id of the `Inbound` that began it
        self.inbound = inbound  # None: pushed before this process was started
        self.text = ""  # of the answer so far, at most MAX_TEXT_BYTES
        self.is_cut = inbound is None  # the beginning of `text` is missing
        self.steps: dict[str, TurnStep] = {}  # by id, in the order they began, the last MAX_STEPS
        self.prompt: LivePrompt | None = None
        self.error: LiveError | None = None
        self.is_working = True
        # The external id of the message that shows this turn. Set it where one was posted: the
        # reply's first part gets it as `draft`, also if this process is killed in between.
        self.draft = ""
        self._text_bytes = 0

    def __repr__(self) -> str:
        return f"<LiveTurn {self.turn} in {self.chat_id}>"

    def snapshot(self) -> LiveTurn:
        """Return a copy that no event changes any more."""
        copied = copy(self)
        copied.steps = dict(self.steps)
        return copied

    # What the events say

    def add_text(self, text: str) -> None:
        """Add a piece of the answer, as far as there is room."""
        room = MAX_TEXT_BYTES - self._text_bytes
        encoded = text.encode(errors="replace")[: max(room, 0)]
        self._text_bytes += len(encoded)
        self.text += encoded.decode(errors="ignore")

    def set_step(self, step: TurnStep) -> None:
        if _size(step) > MAX_STEP_BYTES:
            step = TurnStep(step.id, step.name[:100], step.turn, status=step.status)
        self.steps[str(step.id)] = step
        while len(self.steps) > MAX_STEPS:
            del self.steps[next(iter(self.steps))]

    def ask(self, said: TurnPrompt) -> None:
        """Set the prompt; the agent waits for the user now."""
        self.is_working = False
        if _size(said) > MAX_PROMPT_BYTES:
            return
        self.prompt = LivePrompt(
            id=str(said.id),
            text=said.text,
            input_type=said.known_input_type,
            options=said.full_options,
            placeholder=said.placeholder,
            required=said.required,
        )

    def answer(self) -> None:
        """Remove the prompt: the agent works again."""
        self.prompt = None
        self.is_working = True

    def fail(self, said: TurnError) -> None:
        self.is_working = False
        if _size(said) <= MAX_PROMPT_BYTES:
            self.error = LiveError(said.code, said.message)


def _size(said: msgspec.Struct) -> int:
    return len(msgspec.json.encode(said))
