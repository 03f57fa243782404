"""A seeded simulation: clients, agents, lost lines and restarts at random, and what must hold.

`python -m tests.gateway.hub.simulation --seeds 100 --steps 300` runs many; a failure prints its
seed, and `--first SEED --seeds 1` replays it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from busd.gateway.conversation import Entry
from busd.gateway.effects import Answer, Cancel, Effect, Enter, Leave, Post, Say
from busd.gateway.events import (
    Delta,
    Entered,
    Event,
    Posted,
    PromptClosed,
    Prompted,
    Replied,
    Said,
    Stepped,
    TurnBegan,
    TurnEnded,
    TurnFailed,
)
from busd.testing.gateway import GatewayAgent, GatewayKit, Words, open_gateway
from tests.gateway.hub.probe import Other, Probe, ProbeClient, join

NAMES = ("one", "two")
_OF_TURNS = (TurnBegan, Delta, Stepped, Prompted, PromptClosed, TurnFailed, TurnEnded)
_OF_ENTRIES = (Said, Posted, Replied, TurnFailed)


class Seen:
    """What one client name has been shown, over all of its connections."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: dict[str, int] = {}  # number by conversation
        self.ended: set[tuple[str, str, str]] = set()
        # The gateway was killed, maybe before it had recorded what was shown in these.
        self.unsure: set[str] = set()

    def check(self, events: list[Event]) -> None:
        """Check what one connection was shown, in order."""
        has_entered: set[str] = set()
        for event in events:
            if isinstance(event, Entered):
                for entry in event.entries:
                    self._check_number(event.conversation, entry.number)
                self.unsure.discard(event.conversation)
                has_entered.add(event.conversation)
            elif isinstance(event, _OF_ENTRIES):
                assert event.conversation in has_entered
                self._check_number(event.conversation, event.entry.number)
            if isinstance(event, _OF_TURNS) or (isinstance(event, Replied) and event.turn):
                assert event.turn is not None if not isinstance(event, PromptClosed) else True
                self._check_turn(event)

    def _check_number(self, name: str, number: int) -> None:
        last = self.last.get(name, 0)
        if name in self.unsure and number <= last:
            return
        is_first = name not in self.last
        assert number == last + 1 or is_first, f"{self.name}: {number} after {last} in {name}"
        self.last[name] = number

    def _check_turn(self, event: Any) -> None:
        if isinstance(event, PromptClosed):
            return
        key = (event.conversation, event.turn.id, event.turn.reply_id)
        assert key not in self.ended, f"{self.name}: {type(event).__name__} after the end of {key}"
        if isinstance(event, TurnEnded):
            self.ended.add(key)


class Simulation:
    """One run."""

    def __init__(self, kit: GatewayKit, seed: int) -> None:
        self.kit = kit
        self.random = random.Random(seed)
        self.seen = {f"client-{number}": Seen(f"client-{number}") for number in range(4)}
        self.clients: dict[str, ProbeClient] = {}
        self.agents = [kit.agent("bob"), kit.agent("joe")]
        self.words: list[Words] = []
        self.got: list[str] = []  # bus ids of the words that agents have accepted
        self.said = 0
        self.is_line_lost = False

    async def run(self, steps: int) -> None:
        actions: list[tuple[int, Callable[[TaskGroup], Awaitable[None]]]] = [
            (10, self.connect),
            (3, self.leave),
            (2, self.vanish),
            (14, self.say),
            (4, self.post),
            (3, self.cancel),
            (14, self.accept),
            (14, self.work),
            (8, self.reply),
            (4, self.answer),
            (3, self.line),
            (1, self.restart),
            (3, self.time),
            (12, self.settle),
        ]
        chosen = [action for weight, action in actions for _ in range(weight)]
        async with anyio.create_task_group() as tasks:
            for _ in range(steps):
                await self.random.choice(chosen)(tasks)
        await self.finish()

    # Clients

    async def connect(self, tasks: TaskGroup) -> None:
        name = self.random.choice(list(self.seen))
        if name not in self.clients:
            dialect: type[Probe] = self.random.choice([Probe, Other])
            self.clients[name] = await join(self.kit, dialect=dialect)
        await self._do(tasks, name, Enter(self.random.choice(NAMES), client=name))

    async def leave(self, tasks: TaskGroup) -> None:
        if self.clients:
            name = self.random.choice(list(self.clients))
            if self.random.random() < 0.5:
                await self._do(tasks, name, Leave(self.random.choice(NAMES)))
                return
            await self.clients[name].leave()
            await self.kit.settle()
            self._check(name)
            del self.clients[name]

    async def vanish(self, tasks: TaskGroup) -> None:
        """Lose a connection in the middle of a frame."""
        if not self.clients:
            return
        name = self.random.choice(list(self.clients))
        client = self.clients[name]
        client.dialect.wanted = [self._say(), self._say()]
        async with anyio.create_task_group() as inner:
            inner.start_soon(client.client.receive, "")
            for _ in range(self.random.randrange(4)):
                await anyio.lowlevel.checkpoint()
            inner.cancel_scope.cancel()
        await client.leave()
        await self.kit.settle()
        self._check(name)
        del self.clients[name]

    def _check(self, name: str) -> None:
        self.seen[name].check(self.clients[name].take())

    async def _do(self, tasks: TaskGroup, name: str, *effects: Effect) -> None:
        """Let a client do something; usually nobody waits for it."""
        client = self.clients[name]
        client.dialect.wanted.extend(effects)
        if self.random.random() < 0.5:
            await client.client.receive("")
        else:
            tasks.start_soon(client.client.receive, "")

    def _say(self) -> Say:
        self.said += 1
        agents = self.random.choice([(), (), None, ("joe",), ("bob", "joe")])
        interrupts = self.random.random() < 0.15
        entry = Entry(text=f"words {self.said}")
        return Say(self.random.choice(NAMES), entry, agents, interrupts)

    async def say(self, tasks: TaskGroup) -> None:
        if self.clients:
            await self._do(tasks, self.random.choice(list(self.clients)), self._say())

    async def post(self, tasks: TaskGroup) -> None:
        if self.clients:
            name = self.random.choice(list(self.clients))
            await self._do(tasks, name, Post(self.random.choice(NAMES), Entry(text="post")))

    async def cancel(self, tasks: TaskGroup) -> None:
        if self.clients:
            name = self.random.choice(list(self.clients))
            await self._do(tasks, name, Cancel(self.random.choice(NAMES)))

    async def answer(self, tasks: TaskGroup) -> None:
        """Answer a prompt; if it is not open any more, that is refused."""
        if self.clients:
            name = self.random.choice(list(self.clients))
            prompt_id = f"prompt-{self.random.randrange(6)}"
            where = self.random.choice(NAMES)
            await self._do(tasks, name, Answer(where, prompt_id, ("yes",), Entry(text="yes")))

    # Agents

    async def accept(self, tasks: TaskGroup) -> None:
        agent = self.random.choice(self.agents)
        if not agent.peer.inbox:
            return
        handed = agent.next()
        if handed.payload["type"] != "tg_message":
            handed.ack()
            return
        chance = self.random.random()
        if chance < 0.05:
            handed.fail("no", retry_seconds=1)
        elif chance < 0.1:
            handed.fail("never")
        else:
            handed.ack()
            self._take(agent, handed)

    def _take(self, agent: GatewayAgent, handed: Any) -> None:
        assert handed.delivery_attempt not in (None, 1) or handed.message_id not in self.got
        self.got.append(handed.message_id)
        if "prompt_id" not in handed.payload["content"]:
            self.words.append(Words(agent, handed))

    async def work(self, tasks: TaskGroup) -> None:
        if not self.words:
            return
        words = self.random.choice(self.words)
        number = self.random.randrange(6)
        match self.random.randrange(5):
            case 0 | 1:
                words.tell("turn.delta", text="…")
            case 2:
                words.tell("turn.step", id=f"step-{number}", name="step")
            case 3:
                seconds = self.random.choice([None, 5])
                asked = {"id": f"prompt-{number}", "text": "?", "timeout_seconds": seconds}
                words.tell("turn.prompt", **asked)
            case 4 if self.random.random() < 0.2:
                words.tell("turn.error", code="failed", message="no")
                words.reply("Sorry, that failed: no", message_id=f"{words.id}.{words.agent.name}")

    async def reply(self, tasks: TaskGroup) -> None:
        if self.words:
            words = self.random.choice(self.words)
            if self.random.random() < 0.7:
                self.words.remove(words)
            words.reply("done", message_id=f"{words.id}.{words.agent.name}")

    # The world

    async def line(self, tasks: TaskGroup) -> None:
        if self.is_line_lost:
            self.kit.line.restore()
        else:
            self.kit.line.lose()
        self.is_line_lost = not self.is_line_lost

    async def restart(self, tasks: TaskGroup) -> None:
        is_killed = self.random.random() < 0.5
        if not is_killed:
            await self.kit.settle()
        self.is_line_lost = False
        await self.kit.restart(is_killed=is_killed)
        for name in list(self.clients):
            self._check(name)
            del self.clients[name]
            if is_killed:
                self.seen[name].unsure.update(NAMES)

    async def time(self, tasks: TaskGroup) -> None:
        await self.kit.advance(self.random.choice([1, 6, 6, 20]))

    async def settle(self, tasks: TaskGroup) -> None:
        await self.kit.settle()

    async def finish(self) -> None:
        """Let everything come to its end, and check that it did."""
        kit = self.kit
        if self.is_line_lost:
            kit.line.restore()
        watcher = await join(kit)
        for name in NAMES:
            await watcher.enter(name)
        for _ in range(200):
            await kit.advance(6)
            for agent in self.agents:
                while agent.peer.inbox:
                    handed = agent.next()
                    handed.ack()
                    if handed.payload["type"] == "tg_message":
                        self._take(agent, handed)
            for words in self.words:
                words.reply("done", message_id=f"{words.id}.{words.agent.name}")
            self.words.clear()
            await kit.settle()
            if not kit.hub.overview().turns and not kit.hub.overview().unsent:
                break
        overview = kit.hub.overview()
        assert (overview.turns, overview.prompts, overview.unsent) == (0, 0, 0)
        for name in list(self.clients):
            self._check(name)
        await self._check_store()

    async def _check_store(self) -> None:
        """Check that all entries are there, and that every client that comes back is up to date."""
        for room in list(self.kit.hub.rooms.values()):
            this = room.session_id
            page = await self.kit.store.run(partial(_page, session_id=this))
            numbers = [each.number for each in page]
            assert numbers == list(range(1, len(numbers) + 1))
            turns = [each.turn for each in page if each.kind == "failure"]
            assert len(set(turns)) <= len(turns)


def _page(store: Any, session_id: str) -> list[Entry]:
    entries: list[Entry] = store.page(session_id, last=100_000).entries
    return entries


async def simulate(seed: int, steps: int) -> None:
    """Run one simulation; raise AssertionError naming the seed."""
    try:
        async with open_gateway() as kit:
            await Simulation(kit, seed).run(steps)
    except BaseException as problem:
        problem.add_note(f"seed {seed}: python -m tests.gateway.hub.simulation --first {seed}")
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    quiet = structlog.make_filtering_bound_logger(40)
    structlog.configure(wrapper_class=quiet)
    for seed in range(args.first, args.first + args.seeds):
        anyio.run(simulate, seed, args.steps)
        print(f"seed {seed}: fine", flush=True)


if __name__ == "__main__":
    main()
