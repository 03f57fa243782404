"""A light agent that is slow to end: told to, it still takes messages for a while, in vain."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from threading import Timer

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.plugins.bub.light_agent import LightAgent, said

_LINGER_SECONDS = 1.0


class LingeringAgent(LightAgent):
    is_ending = False

    def end_soon(self) -> None:
        self.is_ending = True
        (self.data / "ending").touch()
        timer = Timer(_LINGER_SECONDS, self.out.shutdown, [2])
        timer.daemon = True
        timer.start()

    def reply(self, text: str, message_id: str) -> None:
        if not self.is_ending:
            super().reply(text, message_id)


if __name__ == "__main__":
    agent = LingeringAgent(said("--client-id"))
    signal.signal(signal.SIGTERM, lambda *_: agent.end_soon())
    agent.run()
