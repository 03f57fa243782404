"""The events of a turn as they are read: the data of `turn.delta`, `turn.step` and so on.

Agents write them in many languages, so what is not known is replaced by its default.
"""

from __future__ import annotations

from typing import Literal, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from busd.rpc.reading import Id

StepStatus = Literal["in_progress", "complete", "failed"]
InputType = Literal["text", "binary_choice", "radio", "checkbox", "dropdown", "notification"]
_INPUT_TYPES = ("text", "binary_choice", "radio", "checkbox", "dropdown", "notification")
_STATUSES = ("in_progress", "complete", "failed")


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file, picture, sound or link beside a text; one of `url` and `data` is set."""

    kind: str = "file"  # "image", "audio", "video", "file" or a dialect's own
    url: str = ""
    data: str = ""  # base64
    name: str = ""
    mime: str = ""
    size: int | UnsetType = UNSET
    extra: Raw | UnsetType = UNSET  # what else the dialect says of it


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the answers that a prompt offers."""

    id: str
    label: str
    value: str
    description: str = ""


class TurnDelta(msgspec.Struct):
    """The data of `turn.delta`."""

    text: str
    turn: Id | None = None


class TurnStep(msgspec.Struct):
    """The data of `turn.step`."""

    id: Id
    name: str = ""
    turn: Id | None = None
    parent: Id | None = None
    tool: str = ""
    arguments: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    status: str = "in_progress"
    code: str = ""

    @property
    def known_status(self) -> StepStatus:
        return cast(StepStatus, self.status) if self.status in _STATUSES else "in_progress"

    @property
    def shown_name(self) -> str:
        return self.name or self.tool or str(self.id)


class TurnOption(msgspec.Struct):
    """An option of a prompt that is more than a text."""

    label: str = ""
    value: str = ""
    id: Id = ""
    description: str = ""


class TurnPrompt(msgspec.Struct):
    """The data of `turn.prompt`."""

    id: Id
    text: str
    turn: Id | None = None
    input_type: str = ""
    options: tuple[str | TurnOption, ...] = ()
    placeholder: str = ""
    required: bool = True
    timeout_seconds: float | None = None

    @property
    def known_input_type(self) -> InputType:
        if self.input_type in _INPUT_TYPES:
            return cast(InputType, self.input_type)
        return "radio" if self.options else "text"

    @property
    def full_options(self) -> tuple[Option, ...]:
        """Return the options with all their members; one without an id has its number."""
        return tuple(_full_option(number, each) for number, each in enumerate(self.options, 1))


class TurnError(msgspec.Struct):
    """The data of `turn.error`."""

    code: str = "agent_failed"
    message: str = "the agent has failed"
    turn: Id | None = None
    details: Raw | UnsetType = UNSET
    severity: str = "error"
    recoverable: bool = True


def _full_option(number: int, said: str | TurnOption) -> Option:
    if isinstance(said, str):
        return Option(str(number), said, said)
    label = said.label or said.value
    return Option(str(said.id) or str(number), label, said.value or label, said.description)
