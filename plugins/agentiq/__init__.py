"""AgentIQ: clients of the NeMo Agent Toolkit, its own web UI among them, over a WebSocket.

Connect to `ws://HOST:7893/websocket?conversation_id=NAME`. The messages are those of the toolkit:
`user_message` begins a turn, and another one in the same conversation ends it. A prompt is answered
with a `user_interaction_message`; it outlives the socket, and is sent again to a client that
reconnects with the same `conversation_id`.

A conversation is named by the message's `conversation_id`, else by that of the URL, else by the
message's `thread_id`, else by the URL's `session`. A client that is not on this host as the owner
of the bus authenticates with an `auth_message`, with `security.token` or `security.api_key` in a
message, or with a token where HTTP has its place.

The toolkit's own web UI cannot answer prompts of the types checkbox and dropdown. With
`?prompts=simple` in the URL they are sent as a text, whose answer may name several options with
commas between, and as radio.
"""

from __future__ import annotations

from busd import Plugin
from busd_plugins.agentiq.dialect import AgentIQ

__all__ = ["plugin"]

plugin = Plugin("agentiq", version="1.0")
plugin.gateway("/websocket")(AgentIQ)
