"""What the client of the original makes of an event `message`, in our own words.

It was taken down from the client at 10ec7f8 of TuckerTucker/tkr-agent-chat, which was also run
against the gateway. A text with an addressee and without a sender is taken for the echo of its own
and dropped; a text of an agent and an error are shown. Of anything else it shows `message` as said
by `agent_id`, but only if the frame has `sessionId`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Packet(NamedTuple):
    """What it shows."""

    agent: str
    text: str
    is_complete: bool
    is_error: bool = False


def shown_by_the_original(data: dict[str, Any]) -> Packet | None:
    """Return what it shows of a message, None if nothing."""
    agent = data.get("fromAgent") or data.get("from_agent")
    target = data.get("toAgent") or data.get("to_agent")
    kind = data.get("type") or "text"
    if not agent and target and data.get("type") == "text":
        return None
    text = data.get("content", data.get("text"))
    if kind == "text" and agent:
        is_complete = data.get("turn_complete", not data.get("streaming"))
        return Packet(agent, text, is_complete) if text else None
    if kind == "error":
        return Packet(agent or "", str(text), True, is_error=True) if text else None
    if "sessionId" in data and "id" in data and data.get("message"):
        is_complete = bool(data.get("turn_complete"))
        return Packet(data.get("agent_id") or agent or "", data["message"], is_complete)
    return None
