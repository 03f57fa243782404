"""What an agent does during a turn, as frames: that it thinks, its steps, its questions."""

from __future__ import annotations

import uuid

import msgspec
from msgspec import UNSET

from busd.gateway import Author, Option, Prompt, PromptEnd, Step, TaskChanged, Turn, TurnFailed
from busd_plugins.group.errors import AGENT_FAILED
from busd_plugins.group.frames import Frames
from busd_plugins.group.messages import Json
from busd_plugins.group.payloads import described
from busd_plugins.group.tracked import IDS, task_payload

THINKING = "[正在思考...]"
_STEPS = {
    "in_progress": ("in_progress", "正在执行"),
    "complete": ("completed", "已完成"),
    "failed": ("failed", "执行失败"),
}
_CLOSED = {
    PromptEnd.ANSWERED: ("completed", "投票已有结果"),
    PromptEnd.TIMED_OUT: ("timed_out", "投票已超时"),
    PromptEnd.TURN_ENDED: ("cancelled", "投票已取消"),
}
_ACTIONS = {"created": "任务已创建", "updated": "任务状态已更新", "cancelled": "任务已取消"}
_decode = msgspec.json.decode
_NAMESPACE = uuid.UUID("6f6d9c6e-3a5c-4d4e-9b8e-7c1d2f0a5b11")


class TurnFrames:
    """Makes the frames of turns for one client."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def thinking(self, turn: Turn, text: str = "") -> Json:
        """Return the frame that precedes an answer; its id stays the same during a turn.

        The id is another one than that of the answer, which clients would take for a repetition.
        """
        name = turn.reply_id or f"{turn.id}/{turn.agent.id}"
        return self._frames.make(
            "agent_response",
            self._frames.in_room(text=text or THINKING, reply_to=turn.id, is_thinking=True),
            sender=self._frames.shown(turn.agent),
            message_id=str(uuid.uuid5(_NAMESPACE, name)),
            metadata={"response_type": "thinking"},
        )

    def step(self, turn: Turn, step: Step) -> Json:
        """Return a step of a turn."""
        status, label = _STEPS[step.status]
        shown: Json = {"id": step.id, "name": step.name}
        if step.parent:
            shown["parent_id"] = step.parent
        if step.tool:
            shown["tool"] = step.tool
        if step.arguments is not UNSET:
            shown["arguments"] = _decode(step.arguments)
        if step.payload is not UNSET:
            shown["result"] = _decode(step.payload)
        if step.code:
            shown["code"] = step.code
        text = f"{label}：{step.name or step.tool or step.id}"
        return self._status(turn, status, text, step=shown)

    def cancelled(self, turn: Turn) -> Json:
        """Return that a turn was cancelled."""
        return self._status(turn, "cancelled", "回答已取消")

    def _status(self, turn: Turn, status: str, text: str, **more: Json) -> Json:
        payload = self._frames.in_room(text=text, status=status, reply_to=turn.id, **more)
        return self._frames.make("status", payload, sender=self._frames.shown(turn.agent))

    def failed(self, event: TurnFailed) -> Json:
        """Return that a turn has failed."""
        details = event.message if event.details is None else _decode(event.details)
        frame = self._frames.error(
            event.code or AGENT_FAILED,
            self._frames.failure(event.turn.agent, event.message),
            details,
            severity=event.severity,
            request_id=event.turn.id,
            message_id=event.entry.id,
            group_id=self._frames.room,
            reply_to=event.turn.id,
        )
        frame["metadata"]["recoverable"] = event.recoverable
        return {**frame, "timestamp": event.entry.timestamp or frame["timestamp"]}

    def question(self, prompt: Prompt, turn: Turn | None) -> Json:
        """Return an agent's question as a poll, or a notice that needs no answer."""
        agent = self._frames.shown(turn.agent if turn else Author(""))
        about = self._frames.in_room(text=prompt.text, reply_to=prompt.turn)
        if prompt.input_type == "notification":
            payload = {**about, "event_type": "notification", "subject": described(agent)}
            return self._frames.make("system", payload, message_id=prompt.id)
        payload = {
            **about,
            "poll_id": prompt.id,
            "options": [_shown_option(option) for option in prompt.options],
            "multiple": prompt.input_type == "checkbox",
            "input_type": prompt.input_type,
            "required": prompt.required,
            "status": "in_progress",
        }
        if prompt.placeholder:
            payload["placeholder"] = prompt.placeholder
        if prompt.seconds_left is not None:
            payload["seconds_left"] = round(prompt.seconds_left, 1)
        return self._frames.make(
            "poll", payload, sender=agent, message_id=prompt.id, timestamp=prompt.timestamp
        )

    def question_closed(self, prompt: Prompt, how: PromptEnd) -> Json:
        """Return that a question needs no answer any more."""
        status, text = _CLOSED[how]
        payload = self._frames.in_room(
            text=text, task_id=prompt.id, poll_id=prompt.id, reply_to=prompt.id, status=status
        )
        return self._frames.make("task_update", payload)

    def task(self, event: TaskChanged) -> Json:
        """Return the change of a task by an agent, or by a client of another dialect."""
        payload = task_payload(event.task, self._frames.room)
        kind = "task_update"
        if event.action == "created":
            kind = str(event.task.kind) if event.task.kind in IDS else "task"
        else:
            payload = {"title": payload["text"], **payload, "text": _ACTIONS[event.action]}
        return self._frames.make(kind, payload, sender=event.by)


def _shown_option(option: Option) -> Json:
    shown = {"id": option.id, "text": option.label, "value": option.value}
    return {**shown, "description": option.description} if option.description else shown
