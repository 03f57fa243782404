"""One message of each documented format: in, to the gateway, and out to another client."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import (
    Author,
    ChangeTask,
    ContextShared,
    Event,
    Notify,
    Post,
    Posted,
    Request,
    Said,
    Say,
    ShareContext,
    TaskChanged,
)
from busd_plugins.tkr import standard_to_legacy
from tests.gateway.tkr.client import Client

BASE = {"timestamp": "2026-02-17T05:00:00.789Z", "session_id": "session_f00"}
USER_TEXT = {
    "id": "msg_1771304400789",
    "type": "text",
    **BASE,
    "from_user": True,
    "content": "Good evening, will it snow?",
    "to_agent": "rita_hanson",
}
AGENT_TEXT = {
    "id": "msg_1771304402876",
    "type": "text",
    **BASE,
    "from_agent": "rita_hanson",
    # An encoding error of the sender is passed on as it is.
    "content": "Good evening! It has -2Â°C, and it snows.",
    "in_reply_to": "msg_1771304400789",
    "streaming": False,
    "turn_complete": True,
}
AGENT_MESSAGE = {
    "id": "m3",
    "type": "agent_message",
    **BASE,
    "from_agent": "rita_hanson",
    "to_agent": "ned",
    "content": {"question": "How deep is the snow?"},
    "task_id": "task_7",
}
SYSTEM = {"id": "m4", "type": "system", **BASE, "content": "Maintenance at noon"}
ERROR = {
    "id": "m5",
    "type": "error",
    **BASE,
    "content": "The camera is frozen",
    "error_code": "CAMERA",
    "error_details": {"celsius": -20},
    "severity": "critical",
    "recoverable": False,
}
CONTEXT_UPDATE = {
    "id": "m6",
    "type": "context_update",
    **BASE,
    "from_agent": "rita_hanson",
    "context_id": "snow",
    "context_data": {"depth": 40},
    "target_agents": ["ned"],
}
TASK_UPDATE = {
    "id": "m7",
    "type": "task_update",
    **BASE,
    "from_agent": "rita_hanson",
    "task_id": "task_7",
    "status": "completed",
    "action": "update",
    "result": {"depth": 40},
}
EXAMPLES = (USER_TEXT, AGENT_TEXT, AGENT_MESSAGE, SYSTEM, ERROR, CONTEXT_UPDATE, TASK_UPDATE)
# What another client is not told as it was said: a user's text has its addressee in `metadata`, and
# changes of tasks and contexts are events with an id and a time of their own.
CHANGED = {
    "text": {"to_agent"},
    "context_update": {"id", "timestamp"},
    "task_update": {"id", "timestamp"},
}


def event_of(request: Request) -> Event:
    """Return what the gateway shows others of a request."""
    session = "session_f00"
    match request:
        case Say(entry=entry):
            return Said(session, entry, False)
        case Post(entry=entry):
            return Posted(session, entry, False)
        case ChangeTask(task=task, action=action, by=by):
            return TaskChanged(session, task, action, by or Author("ann"), False)
        case ShareContext(context_id=context_id, data=data, agents=agents, by=by):
            return ContextShared(session, context_id, data, agents, by or Author("ann"), False)
    raise AssertionError(request)


@pytest.mark.parametrize("spelling", ["standard", "legacy", "both"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["id"])
def test_a_message_reaches_another_client_as_it_was_sent(
    example: dict[str, Any], spelling: str
) -> None:
    legacy = standard_to_legacy(example)
    sent = {"standard": example, "legacy": legacy, "both": {**legacy, **example}}[spelling]
    one, other = Client(session_id="session_f00"), Client(session_id="session_f00", user="bob")
    one.requests.clear()
    assert one.send("message", sent)["status"] in ("delivered", "success")
    [request] = one.requests
    assert not isinstance(request, Notify)
    (_, frame), *_ = other.show(event_of(request))
    names = set(example) - CHANGED.get(example["type"], set())
    assert {name: frame.get(name) for name in names} == {name: example[name] for name in names}
    if "to_agent" not in CHANGED.get(example["type"], set()):
        assert frame.get("toAgent") == example.get("to_agent")
    for name in ("sessionId", "fromAgent", "inReplyTo", "taskId", "contextId", "errorCode", "text"):
        assert frame.get(name) == legacy.get(name)
