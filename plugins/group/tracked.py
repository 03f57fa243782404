"""Messages whose state is tracked: tasks, polls, decisions and handoffs.

The host keeps their state; a message of one shows it as `status`, `progress` and `update_history`,
and a poll its votes as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from busd.gateway import Author, Option, Task, TaskUpdate
from busd_plugins.group.errors import Invalid
from busd_plugins.group.messages import Json, Message, number_of, text_of
from busd_plugins.group.payloads import authors_of, described

_encode = msgspec.json.encode
_decode = msgspec.json.decode
# The member that names one, by the type of the message.
IDS = {
    "task": ("task_id",),
    "task_update": ("task_id", "poll_id", "decision_id", "handoff_id"),
    "poll": ("poll_id", "task_id"),
    "decision": ("decision_id",),
    "handoff": ("handoff_id",),
}
_INSTEAD = ("title", "question", "description", "reason")
_FIRST_STATUS = {"task": "pending", "poll": "in_progress", "decision": "pending"}
_CANCELLED = {"cancelled", "canceled", "已取消"}
_CLOSED = {"closed", "completed", "已完成", "已结束", *_CANCELLED}
# What a task has of its own; everything else of a payload is its data.
_OWN = {
    *("text", "group_id", "reply_to", "mentions", "assignees"),
    *("task_id", "poll_id", "decision_id", "handoff_id"),
    *("status", "progress", "update_history", "result", "results", "total_votes", "votes"),
}
_CHOICES = ("vote", "votes", "option_id", "option_ids", "choice", "choices", "answer", "answers")
MAX_OPTIONS = 100  # of a poll, and choices of one vote
_SHOWN_OPTIONS = 20  # in an error
_RECEIVERS = ("to", "to_agent", "target", "assignee")


def named_id(kind: str, payload: Json) -> str:
    """Return the id by which a message names what it is about, or ""."""
    return next((str(payload[name]) for name in IDS[kind] if payload.get(name)), "")


def read_state(message: Message) -> Task:
    """Return what a message says about the state of a task; raise Invalid."""
    payload = message.payload
    task = Task(task_id=named_id(message.type, payload))
    if "status" in payload:
        task.status = text_of(payload["status"], "payload.status")
    if "progress" in payload:
        task.progress = number_of(payload["progress"], "payload.progress", 100)
    if not isinstance(payload.get("update_history", []), list):
        raise Invalid("payload.update_history", "必须是数组")
    if "result" in payload:
        task.result = Raw(_encode(payload["result"]))
    if "assignees" in payload:
        task.assignees = tuple(authors_of(payload["assignees"]))
    data = {name: value for name, value in payload.items() if name not in _OWN}
    if data:
        task.data = Raw(_encode(data))
    return task


def first_state(message: Message) -> Task:
    """Return the state of a task that a message creates; raise Invalid."""
    task = read_state(message)
    task.task_id = task.task_id or message.id
    task.kind = message.type
    task.title = words_of(message)
    task.entry_id = message.id
    if task.status is UNSET:
        task.status = _FIRST_STATUS.get(message.type, "pending")
    if task.progress is UNSET:
        task.progress = 0
    if message.type == "handoff" and task.assignees is UNSET:
        task.assignees = receivers(message)
    return task


def words_of(message: Message) -> str:
    """Return the words of a message; some clients put those of a poll or a task elsewhere."""
    names = ("text", *_INSTEAD) if message.type in IDS else ("text",)
    values = (message.payload.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value), "")


def receivers(message: Message) -> tuple[Author, ...]:
    """Return to whom a handoff hands something over."""
    given = [message.payload.get(name) for name in _RECEIVERS]
    return tuple(authors_of(given))


def action_of(task: Task) -> str:
    """Return what a change does to a task, in the words of the bus."""
    return "cancelled" if task.status in _CANCELLED else "updated"


# Polls


def choices_of(payload: Json) -> list[str] | None:
    """Return what the payload of a poll votes for; None if it is no vote. Raise Invalid."""
    if "options" in payload:
        if isinstance(payload["options"], list) and len(payload["options"]) > MAX_OPTIONS:
            raise Invalid("payload.options", f"超过{MAX_OPTIONS}项")
        return None
    for name in _CHOICES:
        given = payload.get(name)
        if given is None or isinstance(given, dict):
            continue
        items = given if isinstance(given, list) else [given]
        if len(items) > MAX_OPTIONS:
            raise Invalid(f"payload.{name}", f"超过{MAX_OPTIONS}项")
        return [text_of(item, f"payload.{name}") for item in items]
    return None


def vote(task: Task, choices: Iterable[str], voter: Author) -> tuple[Task, str]:
    """Return the change of a poll by a vote, and the vote in words; raise Invalid.

    It replaces an earlier vote; without a choice it takes that back.
    """
    data = data_of(task)
    if task.status in _CLOSED:
        raise Invalid("payload.poll_id", "投票已经结束")
    options = options_of(data.get("options"))
    multiple = bool(data.get("multiple"))
    chosen = chosen_options(options, choices, multiple=multiple)
    votes = {voter.id: [option.id for option in chosen] or None}
    return Task(task_id=task.task_id, data=Raw(_encode({"votes": votes}))), labels(chosen)


def chosen_options(
    options: Sequence[Option], choices: Iterable[str], *, multiple: bool
) -> list[Option]:
    """Return the options that a vote names; raise Invalid. Without options every choice is one."""
    chosen: dict[str, Option] = {}
    for choice in choices:
        option = find_option(options, choice) if options else Option(choice, choice, choice)
        if option is None:
            raise Invalid("payload.vote", f"没有这个选项；可选：{labels(options)}")
        chosen[option.id] = option
    if len(chosen) > 1 and not multiple:
        raise Invalid("payload.vote", "只能选择一个选项")
    return list(chosen.values())


def options_of(given: object) -> tuple[Option, ...]:
    """Return the options of a poll: texts, or objects with an id and a text."""
    options = []
    for number, item in enumerate(given if isinstance(given, list) else [], start=1):
        member = item if isinstance(item, dict) else {"text": item}
        label = str(member.get("text") or member.get("label") or member.get("name") or number)
        value = str(member.get("value") or label)
        key = member.get("id") if isinstance(item, dict) else label
        options.append(Option(str(number if key is None else key), label, value))
    return tuple(options)


def find_option(options: Iterable[Option], said: str) -> Option | None:
    """Return the option with this id, value or label."""
    said = said.strip().casefold()
    options = list(options)
    for name in ("id", "value", "label"):
        for option in options:
            if getattr(option, name).strip().casefold() == said:
                return option
    return None


def labels(options: Iterable[Option]) -> str:
    """Return the labels of options for a user."""
    found = [option.label for option in options]
    more = f"等{len(found)}项" if len(found) > _SHOWN_OPTIONS else ""
    return "、".join(found[:_SHOWN_OPTIONS]) + more


# For clients


def data_of(task: Task) -> Json:
    """Return the data of a task; what is no object is none."""
    data = _decode(task.data) if task.data is not UNSET else {}
    return data if isinstance(data, dict) else {}


def with_state(payload: Json, kind: str, task: Task | None, *, is_own: bool) -> Json:
    """Return a payload with the state of its task; `is_own`: what it says itself is older."""
    state = _state_of(task) if task else {}
    if is_own:
        state.setdefault("status", payload.get("status") or _FIRST_STATUS.get(kind, "pending"))
        state.setdefault("progress", payload.get("progress", 0))
    else:
        state.update({k: payload[k] for k in ("status", "progress", "result") if k in payload})
    history = payload.get("update_history", []) if is_own else []
    state["update_history"] = [*history, *(state.get("update_history", []))]
    if kind == "poll":
        state.update(_tally(task, payload))
    return {**payload, **state}


def _state_of(task: Task) -> Json:
    state: Json = {}
    if task.status is not UNSET:
        state["status"] = task.status
    if task.progress is not UNSET:
        state["progress"] = _number(task.progress)
    if task.result is not UNSET:
        state["result"] = _decode(task.result)
    if task.assignees is not UNSET and task.assignees:
        state["assignees"] = [described(author) for author in task.assignees]
    state["update_history"] = [_shown_update(update) for update in task.history]
    return state


def _shown_update(update: TaskUpdate) -> Json:
    shown: Json = {"timestamp": update.timestamp, "updated_by": described(update.by)}
    if update.status:
        shown["status"] = update.status
    if update.progress is not UNSET:
        shown["progress"] = _number(update.progress)
    return shown


def _number(progress: float) -> Any:
    return int(progress) if progress == int(progress) else progress


def _tally(task: Task | None, payload: Json) -> Json:
    """Return who voted for which option."""
    data = data_of(task) if task else {}
    votes = data.get("votes")
    options = options_of(data.get("options", payload.get("options")))
    results: dict[str, list[str]] = {option.id: [] for option in options}
    cast = votes if isinstance(votes, dict) else {}
    for voter, chosen in cast.items():
        for choice in chosen if isinstance(chosen, list) else []:
            results.setdefault(str(choice), []).append(voter)
    return {"results": results, "total_votes": len(cast)}


def task_payload(task: Task, group_id: str) -> Json:
    """Return the payload of a task for which there is no message of this format."""
    title = "" if task.title is UNSET else task.title
    payload: Json = {**data_of(task), "text": title or task.task_id}
    payload.pop("votes", None)
    payload |= {"group_id": group_id, "task_id": task.task_id}
    kind = task.kind if task.kind in IDS else "task"
    return with_state(payload, str(kind), task, is_own=True)
