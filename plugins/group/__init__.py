"""Group chat: rooms of people and agents, for clients of the format 多代理协作平台.

A client connects to `/ws/messaging/<room>/`. The room is the id of a group, or `<user>_<user>` for
two users. Whoever enters a new room first creates it; its members invite others with a `join` whose
`subject` names them.

The gateway acknowledges with `connect_ack` and shows the last ten messages, the newest first: at
once if it knows who the client is, else after `connect` with `payload.auth_token`. All 25 types of
messages are accepted. `@name` and `@agent:name` in a text become `payload.mentions`.

Who gets a message:

- the agents that it mentions, that a task is assigned to, that something is handed over to, or
  whose answer it replies to; `@agent` or `@代理` alone is the agent that answers by default;
- without any of these, the default agent, if only one user is in the room, and else nobody.

An agent's answer is an `agent_response` that says `[正在思考...]` and then another one with its
words. Its steps are `status` messages, and its questions polls: a reply answers them, a `poll` with
`poll_id` and `vote`, or the next words of the user who was asked.
"""

from __future__ import annotations

from busd import Plugin
from busd_plugins.group.dialect import GroupChat

plugin = Plugin("group", version="1.0")
plugin.gateway("/ws/messaging/{room}/")(GroupChat)
plugin.gateway("/ws/messaging/groups/{room}/")(GroupChat)  # as one page of the original does

__all__ = ["GroupChat", "plugin"]
