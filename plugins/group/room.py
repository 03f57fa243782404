"""What is known of a room: who is there, what is tracked, which questions are open.

The clients of one room share that (`RoomState`): in a room of thousands each has few things of its
own (`Room`).
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from busd.gateway import (
    Arrived,
    Author,
    Departed,
    Entered,
    Entry,
    Event,
    Hello,
    History,
    Kind,
    Posted,
    Prompt,
    PromptClosed,
    Prompted,
    Replied,
    Said,
    Task,
    TaskChanged,
    Turn,
    TurnBegan,
)
from busd_plugins.group.people import People

PREFIX = "group"  # of the addresses of conversations that clients of this format create
_MAX_PRESENT = 20_000
_MAX_OWN = 100


class RoomState:
    """A room, as far as its clients were shown it. To learn something twice changes nothing."""

    def __init__(self) -> None:
        self.people = People()
        self.tasks: dict[str, Task] = {}
        self.questions: dict[str, tuple[Prompt, Turn | None]] = {}
        self.members: list[str] = []
        self.present: set[str] = set()  # ids of the users who are there or have spoken

    def learn(self, event: Event) -> None:
        """Note what an event says about the room."""
        match event:
            case Entered():
                self._learn_state(event)
            case History():
                self._learn_entries(event.entries)
            case Said() | Posted() | Replied():
                self._learn_entries([event.entry])
                # Users of other dialects may be this one, by another name.
                if event.entry.dialect == PREFIX:
                    self._learn_present(event.entry.author)
            case TurnBegan():
                self._learn_agents(event.turn.agent)
            case TaskChanged():
                self.tasks[event.task.task_id] = event.task
                self._learn_agents(*(event.task.assignees or ()))
            case Prompted():
                self.questions[event.prompt.id] = (event.prompt, event.turn)
            case PromptClosed():
                self.questions.pop(event.prompt.id, None)
            case Arrived():
                self.people.learn(event.author)
                self._learn_present(event.author)
                if event.is_member and event.author.id not in self.members:
                    self.members = [*self.members, event.author.id]
            case Departed():
                self.present.discard(event.author.id)
                if event.is_member:
                    self.members = [name for name in self.members if name != event.author.id]
            case _:
                pass

    def _learn_state(self, event: Entered) -> None:
        self.members = event.members
        for author in event.present:
            self.people.learn(author)
            self._learn_present(author)
        self._learn_entries(event.entries)
        self.tasks = {task.task_id: task for task in event.tasks}
        for task in event.tasks:
            self._learn_agents(*(task.assignees or ()))
        turns = {turn.id: turn for turn in event.turns}
        self.questions = {p.id: (p, turns.get(p.turn)) for p in event.prompts}
        self._learn_agents(*(turn.agent for turn in event.turns))

    def _learn_entries(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.people.learn(entry.author, *entry.mentions)
            if entry.kind is Kind.REPLY:
                self.people.learn_answer(entry.id, entry.author)

    def _learn_agents(self, *agents: Author) -> None:
        self.people.learn(*(agent for agent in agents if agent.id and agent.type == "agent"))

    def _learn_present(self, author: Author) -> None:
        if author.type == "user" and author.id and len(self.present) < _MAX_PRESENT:
            self.present.add(author.id)


_states: WeakValueDictionary[str, RoomState] = WeakValueDictionary()  # by session id


class Room:
    """The room of one client."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._state = RoomState()
        self.name = hello.room
        self.is_entered = False
        self.is_new = False  # this client was the first who entered it
        self.is_repeated = False  # entered again, by a client that is in it
        self.session_id = ""
        self._own: set[str] = set()  # ids by which this client has spoken

    @property
    def user(self) -> str:
        """Who the client has proved to be, or ""."""
        return self._hello.user

    @property
    def people(self) -> People:
        """Who is known in the room."""
        return self._state.people

    @property
    def tasks(self) -> dict[str, Task]:
        """What is tracked in the room, by its id."""
        return self._state.tasks

    @property
    def questions(self) -> dict[str, tuple[Prompt, Turn | None]]:
        """The open questions of agents, by their ids."""
        return self._state.questions

    def learn(self, event: Event) -> None:
        """Note what an event says about the room."""
        if isinstance(event, Entered):
            self.is_repeated = self.is_entered
            self.is_entered = True
            self.is_new = event.is_new
            self.session_id = event.session_id
            self._state = _states.setdefault(event.session_id, self._state)
        self._state.learn(event)

    def left(self) -> None:
        """Note that the client has left."""
        self.is_entered = False
        self._state = RoomState()

    def spoken_by(self, author: Author) -> None:
        """Note who speaks through this client."""
        self.people.learn(author)
        if len(self._own) < _MAX_OWN:
            self._own.add(author.id)

    def partner_of(self, user: str) -> str:
        """Return the other user of a room whose name is `<user>_<user>`, or ""."""
        if user and self.name.startswith(f"{user}_"):
            return self.name.removeprefix(f"{user}_")
        if user and self.name.endswith(f"_{user}"):
            return self.name.removesuffix(f"_{user}")
        return ""

    def is_private(self, author: Author) -> bool:
        """Return whether nobody but this user is here: then all words are for the agent."""
        present, own = self._state.present, {*self._own, author.id, self.user}
        is_alone = len(present) <= len(own) and present <= own
        return is_alone and len(self._state.members) <= 1 and not self.partner_of(author.id)
