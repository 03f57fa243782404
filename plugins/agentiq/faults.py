"""What can be wrong with a frame, and what the toolkit calls it."""

from __future__ import annotations

from busd.gateway import Refused

# The codes that clients know; another one would not pass the toolkit's own validation.
CODES = (
    "unknown_error",
    "invalid_message",
    "invalid_message_type",
    "invalid_user_message_content",
    "invalid_data_content",
    "workflow_error",
    "user_auth_error",
)
_OF_RULES = {
    "unauthenticated": "user_auth_error",
    "authentication": "user_auth_error",
    "author": "user_auth_error",
    "member": "user_auth_error",
    "conversation": "invalid_message",
    "invalid": "invalid_message",
    "prompt": "invalid_message",
    "option": "invalid_user_message_content",
    "agent": "workflow_error",
    "limit": "workflow_error",
    "busy": "workflow_error",
}
_SUMMARIES = {
    "invalid_message": "The message is invalid.",
    "invalid_message_type": "The type of the message is unknown.",
    "invalid_user_message_content": "The content of the message is invalid.",
    "user_auth_error": "Authentication failed.",
}


class Invalid(Exception):
    """Raised for a frame that cannot be understood; `field` is the member at fault."""

    def __init__(self, code: str, field: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.details = f"{field}: {reason}" if field else reason

    @property
    def message(self) -> str:
        return _SUMMARIES.get(self.code, "The message cannot be processed.")


def code_of_rule(rule: str) -> str:
    """Return the toolkit's name for a rule of the gateway."""
    return _OF_RULES.get(rule, "unknown_error")


def code_of_failure(code: str) -> str:
    """Return the toolkit's name for why a turn has failed."""
    return code if code in CODES else "workflow_error"


def details_of(refusal: Refused) -> str:
    """Return what is at fault; the toolkit's details are a string, and never empty."""
    return refusal.detail or refusal.rule
