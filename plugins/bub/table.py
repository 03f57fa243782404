"""Who may send which type of message: the table of the Bub protocol, asked in policy `strict`."""

from __future__ import annotations

from msgspec import Raw

from busd import AgentEvent, Refuse, TgMessage, channel_of, chat_address, read_message
from busd_plugins.bub.chats import TurnCancel

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


def speakers_of(sender: str, type_name: str, payload: Raw) -> list[str]:
    """Return the chat that the content names, if a bridge speaks: it is taken for that chat's."""
    if ":" in sender:
        return []  # it speaks for itself, whatever the content says
    try:
        if type_name == "tg_message":
            said: TgMessage | TurnCancel = read_message(payload, TgMessage)
        elif type_name == "agent_event":
            said = read_message(payload, AgentEvent).read(TurnCancel)
        else:
            return []
    except Refuse:
        return []  # whoever gets it refuses it
    if not (said.channel and said.chat_id):
        return []
    return [chat_address(channel_of(said.channel), str(said.chat_id))]


def _kind_of(sender: str) -> tuple[str, frozenset[str]]:
    if sender == "agent:system" or sender.startswith("system:"):
        return "the system", _SYSTEM
    if sender.startswith("agent:"):
        return "an agent", _AGENT
    return "a bridge", _BRIDGE
