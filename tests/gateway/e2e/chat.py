"""What the clients of the four formats have in common: they say, hear, answer and come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

import anyio
import msgspec
from anyio.abc import TaskStatus

from tests.gateway.e2e.place import Place

# What a frame means: words of somebody; an agent's complete answer, or a part of it; that a turn
# has failed or was stopped; a step; a question, or that it is closed; a complaint about a frame.
Kind = Literal[
    "words", "answer", "part", "failure", "stopped", "step", "prompt", "closed", "error", "notice"
]
PATIENCE_SECONDS = 30.0


class Heard(msgspec.Struct, kw_only=True, frozen=True):
    """A frame, as far as all formats have a word for it."""

    kind: Kind
    text: str = ""
    author: str = ""  # an id
    id: str = ""
    about: str = ""  # the id of the words that it answers, or replies to
    frame: Any = None


class Chat(ABC):
    """One client in one conversation, as the real one of its format."""

    dialect: ClassVar[str]

    def __init__(self, place: Place, name: str, *, author: str = "owner", token: str = "") -> None:
        self.place = place
        self.name = name
        self.author = author  # the id by which the others know who is here
        self.token = token
        self.frames: list[Any] = []  # all that came, over all connections
        self.heard: list[Heard] = []
        self.connections = 0
        self._seen = 0  # of `heard`, by `until`
        self._news = anyio.Event()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    # What a format does

    @abstractmethod
    async def run(self) -> None:
        """Connect, and again whenever the connection is lost; call `entered` each time."""

    @abstractmethod
    async def say(self, text: str, *, reply_to: str = "", words_id: str = "") -> str:
        """Say something; return its id once it is accepted, as far as the format tells."""

    @abstractmethod
    async def answer(self, prompt: Heard, *values: str) -> None:
        """Answer a question."""

    @abstractmethod
    def hear(self, frame: Any) -> Iterable[Heard]:
        """Return what a frame means."""

    # What all do

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        """Stay in the conversation until cancelled; it has started when it is entered."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.run)
            await self.until_back(1)
            task_status.started()

    def entered(self) -> None:
        """Note that the client has entered its conversation, again or for the first time."""
        self.connections += 1
        self._wake()

    def take(self, frame: Any) -> None:
        """Note a frame, and what it means."""
        self.frames.append(frame)
        self.heard += self.hear(frame)
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(
        self, kind: Kind, text: str | None = None, *, author: str | None = None, about: str = ""
    ) -> Heard:
        """Wait for something like that; what is heard until then counts as seen."""

        def is_meant(each: Heard) -> bool:
            return (
                each.kind == kind
                and text in (None, each.text)
                and author in (None, each.author)
                and about in ("", each.about)
            )

        wanted = (kind, text, author, about)
        with anyio.move_on_after(PATIENCE_SECONDS):
            while True:
                while self._seen < len(self.heard):
                    self._seen += 1
                    if is_meant(found := self.heard[self._seen - 1]):
                        return found
                await self._news.wait()
        raise AssertionError(f"{self!r} did not hear {wanted}, but {self.frames}")

    async def until_end(self, words_id: str = "") -> Heard:
        """Wait until an agent has answered words, or has failed."""
        await self.when(lambda: bool(self.endings(words_id)))
        return self.endings(words_id)[0]

    def endings(self, words_id: str = "") -> list[Heard]:
        """Return how the turns of certain words, or of all, have ended."""
        found = self.all("answer", "failure", "stopped")
        return [each for each in found if words_id in ("", each.about)]

    async def when(self, is_so: Callable[[], bool]) -> None:
        """Wait until a condition holds that changes with what is heard."""
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not is_so():
                await self._news.wait()
            return
        raise AssertionError(f"{self!r} heard {self.frames}")

    async def until_back(self, connections: int) -> None:
        """Wait until the client has connected so many times."""
        await self.when(lambda: self.connections >= connections)

    def all(self, *kinds: Kind) -> list[Heard]:
        """Return all that was heard of these kinds."""
        return [each for each in self.heard if each.kind in kinds]

    def __repr__(self) -> str:
        return f"<{self.dialect} client in {self.name}>"
