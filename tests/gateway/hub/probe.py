"""Dialects that ask for what the test wants, and record what they are shown."""

from __future__ import annotations

from typing import Any, TypeVar

from busd.gateway.conversation import Author, Entry
from busd.gateway.dialect import Dialect
from busd.gateway.effects import Answer, Effect, Effects, Enter, Frame, Say, Send
from busd.gateway.events import Done, Entered, Event, Refused
from busd.testing.gateway import GatewayClient, GatewayKit

E = TypeVar("E")
LOBBY = "lobby"


class Probe(Dialect):
    """Yields the effects that the test has put here."""

    prefix = "probe"

    def __init__(self, hello: Any) -> None:
        super().__init__(hello)
        self.wanted: list[Effect] = []
        self.events: list[Event] = []
        self.refusals: list[tuple[str, str]] = []

    def receive(self, frame: Frame) -> Effects:
        wanted, self.wanted = self.wanted, []
        yield from wanted

    def show(self, event: Event) -> Effects:
        self.events.append(event)
        yield Send(type(event).__name__)

    def refuse(self, rule: str, reason: str) -> Effects:
        self.refusals.append((rule, reason))
        yield Send(rule)


class Other(Probe):
    """Another dialect, whose channel has a name of its own."""

    prefix = "other"
    channel = "strange"


class ProbeClient:
    """A client that speaks a probe's dialect."""

    def __init__(self, client: GatewayClient) -> None:
        self.client = client
        assert isinstance(client.dialect, Probe)
        self.dialect = client.dialect

    @property
    def events(self) -> list[Event]:
        return self.dialect.events

    async def do(self, *effects: Effect) -> Done | Refused:
        """Perform effects; return the outcome of the last one that has one."""
        self.dialect.wanted = list(effects)
        before = len(self.events)
        await self.client.receive("")
        outcomes = [e for e in self.events[before:] if isinstance(e, Done | Refused)]
        return outcomes[-1]

    async def must(self, *effects: Effect) -> Done:
        outcome = await self.do(*effects)
        assert isinstance(outcome, Done), outcome
        return outcome

    async def refused(self, *effects: Effect) -> Refused:
        outcome = await self.do(*effects)
        assert isinstance(outcome, Refused), outcome
        return outcome

    async def enter(self, name: str = LOBBY, **more: Any) -> Entered:
        await self.must(Enter(name, **more))
        return self.last(Entered)

    async def say(self, text: str, name: str = LOBBY, *, id: str = "", **more: Any) -> Done:  # noqa: A002 - as in the entry
        entry = Entry(text=text, id=id, author=more.pop("author", Author("")))
        return await self.must(Say(name, entry, **more))

    async def answer(self, prompt_id: str, *values: str, name: str = LOBBY) -> Done | Refused:
        return await self.do(Answer(name, prompt_id, values, Entry(text=", ".join(values))))

    def take(self) -> list[Event]:
        """Return what was shown since the last time."""
        taken = list(self.events)
        self.events.clear()
        return taken

    def seen(self) -> list[str]:
        """Return the names of the events since the last time."""
        return [type(each).__name__ for each in self.take()]

    def all(self, kind: type[E]) -> list[E]:
        return [each for each in self.events if isinstance(each, kind)]

    def last(self, kind: type[E]) -> E:
        return self.all(kind)[-1]

    async def leave(self) -> None:
        await self.client.leave()


async def join(
    kit: GatewayKit, user: str = "owner", dialect: type[Probe] = Probe, **more: Any
) -> ProbeClient:
    """Return a client that has connected and entered nothing yet."""
    return ProbeClient(await kit.connect(dialect, user=user, **more))
