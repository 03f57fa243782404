"""Messages in every spelling, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from busd_plugins.tkr.adapters import LEGACY_NAMES

Message = dict[str, Any]
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(
    ["text", "agent_message", "system", "error", "context_update", "task_update", "ping", "pong"]
)
TIMES = st.datetimes().map(lambda when: f"{when.isoformat(timespec='milliseconds')}Z")
CONTENTS = NAMES | st.dictionaries(NAMES, JSON_VALUES, max_size=3)
FLAGS = st.booleans()


def standard_messages() -> st.SearchStrategy[Message]:
    """Any message of the standard spelling: its required members, and any of the others."""
    return st.fixed_dictionaries(
        {
            "id": NAMES,
            "type": TYPES,
            "timestamp": TIMES,
            "session_id": NAMES,
        },
        optional={
            "to_agent": NAMES,
            "content": CONTENTS,
            "in_reply_to": NAMES,
            "streaming": FLAGS,
            "turn_complete": FLAGS,
            "metadata": st.dictionaries(NAMES, JSON_VALUES, max_size=3),
            "context_id": NAMES,
            "context_data": JSON_VALUES,
            "target_agents": st.lists(NAMES, max_size=3),
            "task_id": NAMES,
            "status": NAMES,
            "action": st.sampled_from(["create", "update", "cancel"]),
            "result": JSON_VALUES,
            "error_code": NAMES,
            "error_details": JSON_VALUES,
            "severity": st.sampled_from(["warning", "error", "critical"]),
            "recoverable": FLAGS,
        },
    ).flatmap(_with_sender)


def any_messages() -> st.SearchStrategy[Message]:
    """Any object with members of either spelling, of both or of none, and others."""
    names = [*LEGACY_NAMES, *LEGACY_NAMES.values(), "id", "type", "timestamp", "content", "text"]
    known = st.dictionaries(st.sampled_from(names), JSON_VALUES, max_size=8)
    return st.builds(
        lambda one, other: {**other, **one}, known, st.dictionaries(NAMES, JSON_VALUES)
    )


def _with_sender(message: Message) -> st.SearchStrategy[Message]:
    senders = st.one_of(
        NAMES.map(lambda name: {"from_agent": name}),
        st.just({"from_user": True}),
        NAMES.map(lambda name: {"from_user": name}),
        NAMES.map(lambda name: {"from_agent": name, "from_user": False}),
    )
    return senders.map(lambda sender: {**message, **sender})
