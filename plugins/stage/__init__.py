"""Stage chat: clients that send plain text, and get a JSON frame for each stage of an answer.

Connect to `ws://HOST:7893/ws/ai`. A `welcome` comes at once; every text frame is a message, and
`exit` ends the session. An answer is one `initial_response`; if the agent uses tools, it goes on
with a `tool_result` or an error for each, and one `final_response`. While the agent asks something,
the next text is the answer: an option's number, its label or the beginning of that.

With `?session_id=` (it is in every frame) a client comes back to its session. With `?tool_calls=1`
it also gets the stage `tool_call` when a tool is begun.
"""

from __future__ import annotations

from busd import Plugin
from busd_plugins.stage.dialect import StageChat

__all__ = ["plugin"]

plugin = Plugin("stage", version="1.0")
plugin.gateway("/ws/ai")(StageChat)
