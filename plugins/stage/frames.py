"""The frames that a stage chat client gets."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from busd.gateway import Author, Entry, Hello, Prompt, Step
from busd_plugins.stage.texts import plain_text, text_of

Frame = dict[str, Any]
_ERROR_STAGES = {"missing": "tool_missing", "arguments": "tool_args"}


class Frames:
    """Makes the frames of one connection; all have the members that tell where they belong."""

    def __init__(self, hello: Hello, session_id: str) -> None:
        self._hello = hello
        self._session_id = session_id
        self._sequence = 0
        self.conversation_id = session_id

    def typed(self, kind: str, message: str, *, parent: str = "", **more: Any) -> Frame:
        """Return a frame that belongs to no stage."""
        frame: Frame = {"status": "success", "type": kind, "message": message, **more}
        if kind == "exception":
            frame |= {"status": "error", "error": message}  # where clients look for it in any error
        return self._frame(frame, parent)

    def response(self, stage: str, content: str, parent: str) -> Frame:
        return self._frame({"status": "success", "stage": stage, "content": content}, parent)

    def tool_call(self, step: Step, parent: str) -> Frame:
        frame: Frame = {"status": "success", "stage": "tool_call", "tool": step.tool}
        frame["arguments"] = {} if step.arguments is UNSET else step.arguments
        return self._frame({**frame, "content": "", "tool_call_id": step.id}, parent)

    def tool_end(self, step: Step, parent: str) -> Frame:
        """Return the result of a tool, or why there is none."""
        text = plain_text(step.payload)
        frame: Frame = {"status": "success", "stage": "tool_result", "tool": step.tool}
        if step.status == "complete":
            frame["response"] = text
        else:
            frame["status"] = "error"
            frame["stage"] = _ERROR_STAGES.get(step.code, "tool_exec")
            frame["error"] = text or "The tool has failed."
        if step.arguments is not UNSET:
            frame["arguments"] = step.arguments
        return self._frame({**frame, "tool_call_id": step.id}, parent)

    def words(self, entry: Entry) -> Frame:
        """Return what somebody else has said: a client shows the `message` of any type."""
        return self.spoken(entry.author, text_of(entry), parent=entry.turn)

    def spoken(self, author: Author, text: str, *, parent: str = "") -> Frame:
        shown = {"id": author.id, "type": author.type, "name": author.name or author.id}
        role = "assistant" if author.type == "agent" else author.type
        name = shown["name"]
        message = f"{name}: {text}" if name else text
        return self.typed("message", message, parent=parent, role=role, author=shown)

    def prompt(self, prompt: Prompt, parent: str) -> Frame:
        """Return a question as text, and beside it as data for clients that can use them."""
        more: Frame = {"prompt_id": prompt.id, "input_type": prompt.input_type}
        if prompt.options:
            more["options"] = prompt.options
        if prompt.seconds_left is not None:
            more["timeout"] = max(1, round(prompt.seconds_left))
        kind = "notification" if prompt.input_type == "notification" else "prompt"
        return self.typed(kind, question_of(prompt), parent=parent, **more)

    def _frame(self, frame: Frame, parent: str) -> Frame:
        self._sequence += 1
        frame["message_id"] = self._hello.new_id()
        if parent:
            frame["parent_id"] = parent
        frame["conversation_id"] = self.conversation_id
        frame["session_id"] = self._session_id
        frame["sequence"] = self._sequence
        frame["timestamp"] = self._hello.now()
        return frame


def question_of(prompt: Prompt) -> str:
    """Return a question as text, its options numbered."""
    hint = f" ({prompt.placeholder})" if prompt.placeholder else ""
    lines = [f"{prompt.text}{hint}"]
    for number, option in enumerate(prompt.options, 1):
        about = f": {option.description}" if option.description else ""
        lines.append(f"{number}. {option.label or option.value}{about}")
    return "\n".join(lines)
