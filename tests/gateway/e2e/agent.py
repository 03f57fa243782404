r"""An agent for the tests: the words that it gets say what it does.

| words | what it does |
| --- | --- |
| `tell A\|B\|C` | shows the parts one by one, and answers with all of them |
| `work` | shows two steps, one within the other, uses a tool, and one that fails |
| `ask KIND` | asks a question of that kind, and answers with what was chosen |
| `fail`, `crash` | fails: with a message of its own, by a fault |
| `hang NAME` | shows a part and an endless step; when cancelled, creates `NAME.cancelled` |
| `stages NAME` | shows a part, asks and answers; waits at each stage until it is let go |
| anything else | answers with the same words |

Its first argument is the folder of these files. At a stage it writes its pid to `NAME.STAGE`, and
goes on when there is a file `NAME.STAGE.go`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from msgspec import Raw

from busd import Agent, Turn, TurnFailed

OPTIONS = {
    "text": [],
    "binary_choice": ["yes", "no"],
    "radio": ["rye", "wheat", "spelt"],
    "dropdown": ["rye", "wheat", "spelt"],
    "checkbox": ["rye", "wheat", "spelt"],
}
_POLL_SECONDS = 0.01
agent = Agent()
folder = Path(sys.argv[1])


@agent.answers
async def answer(turn: Turn) -> str:
    verb, _, rest = turn.text.partition(" ")
    act = ACTS.get(verb)
    return await act(turn, rest) if act else turn.text


async def tell(turn: Turn, rest: str) -> str:
    parts = rest.split("|")
    for part in parts:
        await turn.delta(part)
    return "".join(parts)


async def work(turn: Turn, rest: str) -> str:
    await turn.delta("Let me see. ")
    arguments = {"bread": "rye"}
    async with turn.step("look up", tool="stock", arguments=arguments) as step:
        async with turn.step("read the list", payload={"rows": 4}, parent=step):
            pass
        step.payload = "3 left"
    try:
        async with turn.step("reserve", tool="till", payload="the till is offline"):
            raise ConnectionError("the till is offline")
    except ConnectionError:
        return "Let me see. Three are left."
    raise AssertionError


async def ask(turn: Turn, rest: str) -> str:
    if rest == "notification":
        data = (
            b'{"turn":"%s","id":"%s.notice","input_type":"notification","text":"The oven is hot"}'
        )
        names = str(turn.reply_to).encode(), turn.message_id.encode()
        await agent.tell(f"events:{agent.talkto}", "turn.prompt", Raw(data % names))
        return "noticed"
    placeholder = "a number" if rest == "text" else ""
    chosen = await turn.ask(
        "Which one?", options=OPTIONS[rest], input_type=rest, placeholder=placeholder
    )
    return f"chosen: {chosen}"


async def fail(turn: Turn, rest: str) -> str:
    raise TurnFailed("the oven is cold", code="oven_cold")


async def crash(turn: Turn, rest: str) -> str:
    raise ValueError("a secret of the agent")


async def hang(turn: Turn, rest: str) -> str:
    try:
        await turn.delta("one, two, ")
        async with turn.step("count", tool="counter"):
            await anyio.sleep_forever()
    finally:
        (folder / f"{rest}.cancelled").touch()
    raise AssertionError


async def stages(turn: Turn, name: str) -> str:
    await turn.delta("Once upon ")
    await stop_at(f"{name}.midway")
    await turn.delta("a time.")
    async with turn.step("look up", tool="stock"):
        pass
    chosen = await turn.ask(f"{name}: which one?", options=OPTIONS["radio"])
    await stop_at(f"{name}.ending")
    return f"{name}: {chosen}"


async def stop_at(stage: str) -> None:
    """Tell the test that a stage is reached, and wait until it lets us go on."""
    reached = folder / f"{stage}.new"
    reached.write_text(str(os.getpid()))
    reached.rename(folder / stage)
    while not (folder / f"{stage}.go").exists():
        await anyio.sleep(_POLL_SECONDS)


ACTS: dict[str, Callable[[Turn, str], Awaitable[str]]] = {
    each.__name__: each for each in (tell, work, ask, fail, crash, hang, stages)
}

if __name__ == "__main__":
    agent.run()
