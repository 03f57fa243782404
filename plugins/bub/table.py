"""Who may send which type of message: the table of the Bub protocol, asked in policy `strict`."""

from __future__ import annotations

_ANYBODY = frozenset({"general_response"})
# `agent_event`: a user stops a turn by one (`turn.cancel`).
_BRIDGE = _ANYBODY | {"spawn_request", "configure", "tg_message", "agent_event"}
_SYSTEM = _ANYBODY | {"spawn_result", "route_assigned", "agent_event"}
_AGENT = _ANYBODY | {"tg_reply", "agent_event"}
_KNOWN = _BRIDGE | _SYSTEM | _AGENT


def refusal_of(sender: str, type_name: str) -> str | None:
    """Say why a sender may not send a type; None if it may, or if the type is none of ours."""
    if type_name not in _KNOWN:
        return None
    kind, allowed = _kind_of(sender)
    if type_name in allowed:
        return None
    return f"{kind} like {sender} may not send {type_name}, only {', '.join(sorted(allowed))}"


def _kind_of(sender: str) -> tuple[str, frozenset[str]]:
    if sender == "agent:system" or sender.startswith("system:"):
        return "the system", _SYSTEM
    if sender.startswith("agent:"):
        return "an agent", _AGENT
    return "a bridge", _BRIDGE
