"""Who is known in a room: whom a text can mention, and who said what."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from busd.gateway import Author, AuthorType

MAX_NAME = 64  # longer names cannot be mentioned in a text
_MAX_NAMES = 25_000
_MAX_ANSWERS = 1_000
SYSTEM = Author("system", "system", "系统")
# The one that answers if a message names no agent; its name on the bus may be unknown.
DEFAULT_AGENT = Author("agent", "agent", "代理")
_DEFAULT_NAMES = {"agent", "代理"}


class People:
    """The users and agents of a room by their names, and which agent gave which answer."""

    def __init__(self) -> None:
        self._named: dict[AuthorType, dict[str, Author]] = {"user": {}, "agent": {}, "system": {}}
        self._lengths: list[int] = []  # of the names, sorted
        self._answers: dict[str, Author] = {}

    def learn(self, *authors: Author) -> None:
        """Note authors; who has a name first keeps it, so that nobody takes another's."""
        for author in authors:
            known = self._named[author.type]
            for name in (author.name, author.id):
                key = name.casefold()
                holder = known.get(key)
                if holder is not None and holder.id == author.id and holder.name in ("", holder.id):
                    known[key] = author  # now with a name
                if not key or len(key) > MAX_NAME or holder or len(known) >= _MAX_NAMES:
                    continue
                known[key] = author
                if len(key) not in self._lengths:
                    insort(self._lengths, len(key))

    def learn_answer(self, entry_id: str, agent: Author) -> None:
        """Note which agent gave an answer: a reply to it is meant for that agent."""
        self.learn(agent)
        self._answers[entry_id] = agent
        while len(self._answers) > _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]

    def answerer(self, entry_id: str) -> Author | None:
        """Return the agent that gave this answer."""
        return self._answers.get(entry_id)

    def shown(self, agent: Author) -> Author:
        """Return an agent with the name that people know it by; the default one if it has no id."""
        if not agent.id:
            return DEFAULT_AGENT
        known = self._named["agent"].get(agent.id.casefold())
        is_named = agent.name not in ("", agent.id)
        return known if known and known.id == agent.id and not is_named else agent

    def named(self, name: str, types: Iterable[AuthorType] = ("user", "agent")) -> Author | None:
        """Return who has this name or id, the first of these types."""
        key = name.casefold()
        for kind in types:
            if author := self._named[kind].get(key):
                return author
        return DEFAULT_AGENT if "agent" in types and key in _DEFAULT_NAMES else None

    def at_start(self, text: str, types: Iterable[AuthorType]) -> Author | None:
        """Return whose name a text begins with, the longest one."""
        text = text[: MAX_NAME + 1].casefold()
        for number in reversed(range(bisect_right(self._lengths, len(text)))):
            length = self._lengths[number]
            if _ends_name(text, length):
                for kind in types:
                    if author := self._named[kind].get(text[:length]):
                        return author
        return None


def _ends_name(text: str, length: int) -> bool:
    """Return whether a name may end here: not within an English word, but within Chinese text."""
    around = text[length - 1 : length + 1]
    return not (len(around) == 2 and around.isascii() and around.replace("_", "a").isalnum())
