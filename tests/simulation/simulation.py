"""The simulation: random steps over one world, held to the invariants after each of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.simulation.actor import Actor, Asked
from tests.simulation.elements import NAMES, Element, Talk, is_error
from tests.simulation.ledger import InvariantBroken, claim
from tests.simulation.world import LIMITS, WIRE, World

MAX_ACTORS = 10
# Each takes many turns where a turn ends at every look at the clock.
FLOODS = [
    b"\n" * 500,
    b"{\n" * 200,
    b'{"jsonrpc":"2.0","method":"ping"}\n' * 50,
    b"[" + b"1," * 60 + b"1]\n",
]
NO_JSON = [b"{", b"\xff", b"nonsense", b'{"id":1,}', b"[1,", b'"\xc3']


def simulate(seed: int, steps: int) -> World:
    """Run one seed; raises InvariantBroken with the story and the command that replays it."""
    simulation = Simulation(seed)
    try:
        for _ in range(steps):
            simulation.step()
        simulation.finish()
    except Exception as problem:
        story = "\n".join(simulation.world.story)
        what = f"{type(problem).__name__}: {problem}"
        raise InvariantBroken(
            f"seed {seed}, step {simulation.steps_done}: {what}\n{story}\n"
            f"replay: python -m tests.simulation --seed {seed} --steps {steps}"
        ) from problem
    return simulation.world


class Simulation:
    """Chooses what happens next."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.talk = Talk(self.world)
        self.random = self.world.random
        steps: dict[Callable[[], None], int] = {
            self.join: 6,
            self.come_as_stranger: 1,
            self.say: 40,
            self.answer: 45,
            self.answer_again: 4,
            self.answer_for_another: 4,
            self.never_answer: 3,
            self.say_batch: 8,
            self.flood: 2,
            self.attack: 2,
            self.say_no_json: 2,
            self.send_too_long_a_frame: 1,
            self.stop_reading: 4,
            self.read_on: 5,
            self.half_close: 2,
            self.leave: 2,
            self.pass_time: 10,
            self.pass_much_time: 1,
        }
        self._steps = list(steps)
        self._weights = list(steps.values())
        self.steps_done = 0

    def step(self) -> None:
        chosen = self.random.choices(self._steps, self._weights)[0]
        self.world.run_step(chosen)
        self.steps_done += 1

    def finish(self) -> None:
        """Let everybody go, at once or after the last answer, and look what is left."""
        if self.random.random() < 0.5:
            for actor in list(self.world.actors):
                self.world.run_step(partial(self._read_on, actor))
            self.world.run_step(lambda: self.world.pass_time(LIMITS.ack_seconds))
        while self.world.actors:
            self.world.run_step(lambda: self._go(self.random.choice(self.world.actors)))
        self.world.run_step(lambda: self.world.pass_time(WIRE.linger_seconds))
        self.world.check_empty()

    # Who

    def _pick(self, is_fit: Callable[[Actor], bool]) -> Actor | None:
        fit = [actor for actor in self.world.actors if is_fit(actor)]
        return self.random.choice(fit) if fit else None

    def _member(self) -> Actor | None:
        return self._pick(lambda actor: actor.is_member and not actor.is_ending)

    # What they say

    def _post(self, actor: Actor, elements: list[Element], what: str) -> None:
        """Send each element in a frame of its own."""
        effects = []
        for element in elements:
            self.world.tell(f"{actor} {what} {element.text[:100]}")
            asked = [element.asked] if element.asked else []
            effects += [element.effect, self.world.expect(actor, asked)]
        actor.post([element.text.encode() for element in elements], effects)

    def join(self) -> None:
        if len(self.world.actors) < MAX_ACTORS:
            actor = self.world.connect()
            name = self.random.choice(NAMES)
            self._post(actor, [self.talk.initialize(actor, name)], "joins")

    def come_as_stranger(self) -> None:
        stranger = self._pick(lambda actor: not actor.name and actor.may_speak)
        if stranger is None and len(self.world.actors) < MAX_ACTORS:
            stranger = self.world.connect()
        if stranger is not None:
            self._post(stranger, [self.talk.too_early()], "says too early")

    def say(self) -> None:
        if actor := self._member():
            self._post(actor, [self.talk.any(actor)], "says")

    def say_batch(self) -> None:
        if not (actor := self._member()):
            return
        elements = [self.talk.any(actor) for _ in range(self.random.randint(1, 6))]
        asked = [element.asked for element in elements if element.asked]
        effects = [element.effect for element in elements]
        text = "[" + ",".join(element.text for element in elements) + "]"
        if len(text.encode()) <= WIRE.max_frame_bytes:
            self.world.tell(f"{actor} says at once {text[:300]}")
            actor.post([text.encode()], [*effects, self.world.expect(actor, asked, is_batch=True)])

    def flood(self) -> None:
        """Say many things in one go; who does not read may be stopped after each of them."""
        if not (actor := self._member()):
            return
        elements = [self.talk.any(actor) for _ in range(self.random.randint(5, 40))]
        for some in [elements] if actor.is_reading else [[element] for element in elements]:
            self._post(actor, some, "floods")

    def attack(self) -> None:
        """Say something right behind the flood of a stranger, who must not be served first."""
        world, bus = self.world, self.world.bus
        stranger = bus.connect("hostile")
        flood = self.random.choice(FLOODS)
        world.tell(f"a stranger floods the bus with {flood[:40]!r}")

        def say_something() -> None:
            self.say()
            if bus.connections.turns.slice_seconds == 0:
                bus._soon.run(lambda: claim(bus.connections.turns.is_busy, "the flood came first"))

        def attack() -> None:
            stranger.feed(flood)
            bus._soon.run(say_something)

        bus._soon.run(attack)
        stranger.leave()

    def say_no_json(self) -> None:
        if actor := self._member():
            frame = self.random.choice(NO_JSON)
            self.world.tell(f"{actor} says {frame!r}")
            asked = Asked(None, is_error(-32700))
            actor.post([frame], [self.world.expect(actor, [asked])])

    def send_too_long_a_frame(self) -> None:
        if not (actor := self._member()):
            return

        def effect() -> None:
            self.world.ledger.leave(actor)
            actor.forfeits = True

        self.world.tell(f"{actor} sends a frame over the limit")
        actor.is_ending = True
        asked = Asked(None, is_error(-32600))
        frame = b"x" * (WIRE.max_frame_bytes + 1)
        actor.post([frame], [self.world.expect(actor, [asked]), effect])

    # How they answer

    def answer(self) -> None:
        if actor := self._pick(lambda actor: bool(actor.todo) and self._can_speak(actor)):
            self._post(actor, [self.talk.reply(actor)], "answers")

    def answer_again(self) -> None:
        if actor := self._pick(lambda actor: bool(actor.done) and self._can_speak(actor)):
            self._post(actor, [self.talk.reply_again(actor)], "answers again")

    def answer_for_another(self) -> None:
        actor = self._member()
        other = self._pick(lambda other: bool(other.todo) and other is not actor)
        if actor and other and (element := self.talk.reply_for_another(actor, other)):
            self._post(actor, [element], f"answers for {other}")

    def never_answer(self) -> None:
        if actor := self._pick(lambda actor: bool(actor.todo)):
            actor.todo.pop(0)

    def _can_speak(self, actor: Actor) -> bool:
        return actor.may_speak and not actor.is_ending

    # How they read, and how they go

    def stop_reading(self) -> None:
        if actor := self._member():
            self.world.tell(f"{actor} stops reading")
            actor.peer.stop_reading()
            actor.is_reading = False

    def read_on(self) -> None:
        if actor := self._pick(lambda actor: not actor.is_reading):
            self._read_on(actor)

    def _read_on(self, actor: Actor) -> None:
        self.world.tell(f"{actor} reads on")
        self.world.wake(actor)

    def half_close(self) -> None:
        if actor := self._member():
            self.world.tell(f"{actor} half-closes")
            actor.is_ending = True
            actor.post([], [lambda: self.world.ledger.leave(actor)])
            actor.peer.half_close()

    def leave(self) -> None:
        if self.world.actors:
            self._go(self.random.choice(self.world.actors))

    def _go(self, actor: Actor) -> None:
        self.world.tell(f"{actor} leaves")
        actor.forfeits = True
        self.world.ledger.leave(actor)
        actor.peer.leave()

    # Time

    def pass_time(self) -> None:
        self.world.tell("time passes")
        self.world.pass_time(self.random.choice([0.1, 0.5, 1, 3]))

    def pass_much_time(self) -> None:
        self.world.tell("much time passes")
        self.world.pass_time(self.random.choice([9.99, 10, 40, 150]))
