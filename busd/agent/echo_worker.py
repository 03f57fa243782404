"""The built-in agent: it answers with what was said, so that a bus can be tried without any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from busd.agent.turn import Turn


def make_echo(is_streaming: bool) -> Callable[[Turn], Awaitable[str]]:
    """Return a handler that answers with the same text, word by word if asked."""

    async def echo(turn: Turn) -> str:
        if is_streaming:
            for word in turn.text.split(" "):
                await turn.delta(f"{word} ")
        return turn.text

    return echo
