"""An agent of the worker kit that answers with its settings; `die` kills it, once in its life."""

from __future__ import annotations

import json
import os
import signal

from busd import Agent, Turn

agent = Agent()


@agent.answers
async def answer(turn: Turn) -> str:
    died = agent.workspace / "died"
    if turn.message.text == "die" and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return json.dumps(agent.settings, sort_keys=True)


agent.run()
