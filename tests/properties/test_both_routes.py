"""`sendMessage` is answered alike whether it goes straight to its function or by jsonrpcserver."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from busd.bus.access import Policy
from busd.testing import MemoryBus, ScriptedPeer
from tests.properties.test_envelope import _TEXT, _VALUE

_PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "to": st.sampled_from(["b", "b", "nobody", "b:*", "", "a b", "é"]) | _VALUE,
        "from": st.sampled_from(["a", "someone:else", "", "*"]) | _VALUE,
        "messageId": st.just("m1") | _VALUE,
        "payload": st.dictionaries(_TEXT, _VALUE, max_size=2) | _VALUE,
        "extra": _VALUE,
    },
)
_MOSTLY_GOOD = st.builds(
    lambda params: {"to": "b", "payload": {"n": 1}} | params,
    st.fixed_dictionaries({}, optional={"from": st.just("a") | _VALUE, "messageId": _VALUE}),
)
# A result beside a method makes it a request that does not fit the one expected shape.
_DETOUR = '"result":17,'


def _answers(
    detour: str, params: Any, request_id: Any, policy: Policy, is_member: bool
) -> list[object]:
    """Return all that is seen of one `sendMessage`: answers, and what was handed over."""
    bus = MemoryBus(policy=policy)
    receiver = bus.join("b")
    sender = bus.join("a") if is_member else bus.connect("a")
    sender.frames.clear()
    head = f'{{"jsonrpc":"2.0",{detour}"method":"sendMessage","params":{json.dumps(params)}'
    tail = "}" if request_id is None else f',"id":{json.dumps(request_id)}}}'
    sender.send_frame((head + tail).encode())
    handed = [_handed(receiver) for _ in range(len(receiver.inbox))]
    return [_without_made_up_ids(json.loads(frame)) for frame in sender.frames] + handed


def _handed(receiver: ScriptedPeer) -> object:
    call = receiver.next_message()
    call.ack({"seen": True})
    message_id = "msg_…" if call.message_id.startswith("msg_") else call.message_id
    return call.sender, call.to, message_id, call.raw_payload


def _without_made_up_ids(answer: Any) -> object:
    message_id = answer.get("result", {}).get("messageId", "")
    if message_id.startswith("msg_"):
        answer["result"]["messageId"] = "msg_…"
    return answer


@given(
    _MOSTLY_GOOD | _PARAMS | _VALUE,
    st.none() | st.integers() | st.text("ab", max_size=2),
    st.sampled_from(["open", "strict"]),
    st.integers(0, 9).map(bool),
)
def test_both_routes_answer_alike(
    params: Any, request_id: Any, policy: Policy, is_member: bool
) -> None:
    straight = _answers("", params, request_id, policy, is_member)
    assert straight == _answers(_DETOUR, params, request_id, policy, is_member)
