"""Count messages exactly once, while the bus and the worker are killed and restarted."""

from __future__ import annotations

import random
from contextlib import closing

import msgspec

from tests.crash.counter import Counter
from tests.crash.forks import KILL, TERMINATE
from tests.crash.kills import Scene, open_scene
from tests.crash.processes import Processes
from tests.daemons import Loop

_COUNTER = "agent:counter"
_SENDERS = 5
_BATCH = 64


class Counted(msgspec.Struct):
    """What was sent, and what the worker counted."""

    sent: int
    expected: int
    total: int
    messages: int
    repeated: int
    restarts: int

    def __str__(self) -> str:
        return (
            f"{self.sent} messages, {self.restarts} restarts: counted {self.messages}, sum "
            f"{self.total} of {self.expected}; {self.repeated} came again and changed nothing"
        )


def run_counting(
    loop: Loop, seed: int, messages: int, restarts: int, processes: Processes | None = None
) -> Counted:
    """Send so many messages through so many restarts; return what was counted."""
    each = messages // _SENDERS
    with open_scene(loop, processes=processes) as scene:
        scene.add("counter", _COUNTER, "--address", f"unix:{scene.path}")
        for number in range(_SENDERS):
            limits = "--limit", str(each), "--batch", str(_BATCH)
            scene.add_sender(f"app:s{number}", [_COUNTER], *limits)
        scene.start()
        for number in range(restarts):
            _restart_one(scene, random.Random(f"{seed} {number}"), messages // (restarts + 1))
        scene.wait_until_delivered()
        scene.stop()
        assert not scene.faults, scene.faults[:5]
        with closing(Counter(scene.folder / "counter.db")) as counter:
            total, counted, repeated = counter.read()
    expected = _SENDERS * each * (each + 1) // 2
    return Counted(_SENDERS * each, expected, total, counted, repeated, restarts)


def _restart_one(scene: Scene, chance: random.Random, messages: int) -> None:
    """Restart the bus, the worker or both, after about so many messages."""
    scene.wait(chance.randint(messages // 2, messages))
    which, is_killed = chance.choice(("bus", "worker", "both")), chance.random() < 0.5
    if which != "bus":
        scene.processes.signal(_COUNTER, KILL if is_killed else TERMINATE)
    if which != "worker":
        if is_killed:
            scene.kill()
        else:
            scene.stop()
        scene.start()
