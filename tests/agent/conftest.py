"""What the tests of agents share: a bus, an agent on it, and somebody it talks to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd import Client, Incoming
from busd.agent.agent import Agent
from tests.client.conftest import anyio_backend as anyio_backend
from tests.conftest import DaemonWith
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop

MakeAgent = Callable[..., Agent]


@pytest.fixture(scope="session")
def loop() -> Loop:
    """The loop of the daemon: one is enough here, it is the agents that run on both."""
    return "uvloop"


@pytest.fixture
def daemon(daemon_with: DaemonWith) -> Daemon:
    """A bus and nothing else: an agent needs no plugin."""
    return daemon_with({"plugins.disabled": ["bub"]})


@pytest.fixture
def address(daemon: Daemon) -> str:
    return f"unix:{daemon.path}"


@pytest.fixture
def user(address: str, suffix: str) -> User:
    """The one whom the agent talks to; to be entered with `async with`."""
    return User(f"tg:1{suffix}", f"agent:w{suffix}", address)


@pytest.fixture
def stranger(address: str, suffix: str) -> User:
    """Somebody else."""
    return User(f"tg:2{suffix}", f"agent:w{suffix}", address)


@pytest.fixture
def make_agent(address: str, user: User) -> MakeAgent:
    """Make agents that talk to the user."""

    def make(handler: Callable[..., Any] | None = None, **options: Any) -> Agent:
        options = {"talkto": user.name, "arguments": [], **options}
        agent = Agent(user.agent, address=address, **options)
        if handler:
            agent.answers(handler)
        return agent

    return make


class User:
    """A peer that writes to an agent and reads what it says."""

    def __init__(self, name: str, agent: str, address: str) -> None:
        self.name = name
        self.agent = agent
        self.bus = Client(name, address=address, timeout_seconds=PATIENCE_SECONDS)

    async def __aenter__(self) -> User:
        await self.bus.__aenter__()
        await self.bus.subscribe(f"events:{self.name}")
        self._messages = self.bus.messages()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self.bus.__aexit__(*problem)

    async def write(self, text: str, message_id: str | None = None, **more: Any) -> Any:
        """Write to the agent; gives the payload of its ack."""
        content = {"text": text, "channel": "telegram", **more}
        payload = {"type": "tg_message", "from": self.name, "content": content}
        return await self.send(payload, message_id)

    async def tell(self, event: str, data: Any) -> Any:
        return await self.send(
            {"type": "agent_event", "from": self.name, "content": {"event": event, "data": data}}
        )

    async def send(self, payload: Any, message_id: str | None = None) -> Any:
        """Send anything to the agent; gives the payload of its ack, or why it failed."""
        receipt = await self.bus.send(self.agent, payload, message_id=message_id)
        [ack] = receipt.acks
        return ack.read() if ack.success else ack.message

    async def next(self) -> Incoming:
        """Return the next message that came for the user."""
        with anyio.fail_after(PATIENCE_SECONDS):
            message = await anext(self._messages)
            await message.reply()
            return message

    async def reply(self) -> Any:
        """Return the next message, which is a reply."""
        message = await self.next()
        assert (message.type, message.to) == ("tg_reply", self.name), message.payload
        return message.payload

    async def text(self) -> str:
        """Return the text of the next message, which is a reply."""
        text = (await self.reply())["content"]["text"]
        assert isinstance(text, str)
        return text

    async def event(self, name: str) -> Any:
        """Return the data of the next message, which is this event."""
        message = await self.next()
        assert (message.type, message.to) == ("agent_event", f"events:{self.name}"), message.payload
        content = message.payload["content"]
        assert content["event"] == name, content
        return content["data"]

    async def prompt(self) -> Any:
        """Return the data of the next message, which is a question; it is also asked in a reply."""
        data = await self.event("turn.prompt")
        plain = (await self.reply())["content"]
        assert plain["prompt_id"] == data["id"]
        assert plain["text"].startswith(data["text"])
        return data


@asynccontextmanager
async def serving(agent: Agent) -> AsyncIterator[Agent]:
    """Have an agent on the bus within the block; at its end it is stopped as by a signal."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(agent.serve)
        yield agent
        tasks.cancel_scope.cancel()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir(mode=0o700)
    return folder
