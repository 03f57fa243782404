"""A bus whose mail is on a simulated disk: a test says when it writes, fails and crashes."""

from __future__ import annotations

from collections.abc import Iterable

from busd.bus.delivery import DeliveryLimits
from busd.bus.loops import LoopLimits
from busd.bus.mail import DeadFilter, DeadLetter, Mail
from busd.bus.mail_policy import MailSettings
from busd.mail.simulated import SimulatedDisk
from busd.testing import FakeClock, MemoryBus, ScriptedPeer

ATTEMPTS = {"deliveryAttempt": True}
DURABLE: dict[str, object] = {"durable": True}
ACK_SECONDS = DeliveryLimits().ack_seconds


class DiskBus:
    """One disk, and the runs of a bus on it; the clock goes on."""

    def __init__(
        self,
        settings: MailSettings | None = None,
        limits: DeliveryLimits | None = None,
        loops: LoopLimits | None = None,
    ) -> None:
        self.settings = settings or MailSettings()
        self.limits = limits
        self.loops = loops
        self.clock = FakeClock()
        self.wall_clock = FakeClock(1_000_000.0)
        self.disk = SimulatedDisk(self.settings)
        self.start()

    def start(self, *, is_failing: bool = False) -> None:
        """Begin a new run; the disk may fail what the bus wants to know first."""
        self.store = self.disk.start()
        self.bus = MemoryBus(
            self.limits,
            loops=self.loops,
            mail=self.settings,
            store=self.store,
            clock=self.clock,
            wall_clock=self.wall_clock,
        )
        if is_failing:
            self.fail()
        self.settle()

    def crash(self, *, is_synced: bool = False) -> None:
        """End the run as `kill -9` does, and begin a new one; all connections are gone."""
        self.disk.crash(is_synced=is_synced)
        self.start()

    def join(
        self, name: str, *, subscribe: Iterable[str] = (), extensions: object = None
    ) -> ScriptedPeer:
        peer = self.bus.join(name, subscribe=subscribe, extensions=extensions)
        self.settle()
        return peer

    def settle(self) -> None:
        """Let the disk write and answer until nothing waits for it."""
        while self.store.waiting:
            self.store.sync()
            self.bus.run(self.store.deliver)

    def fail(self, problem: str = "disk full") -> None:
        """Let the disk fail everything that waits for it."""
        self.store.fail(problem)
        self.bus.run(self.store.deliver)

    def advance(self, seconds: float) -> None:
        """Let time pass with a disk that works."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            step = min(0.25, end - self.clock.now)
            self.wall_clock.now += step
            self.bus.advance(step)
            self.settle()

    @property
    def kept(self) -> list[Mail]:
        """All mail on the disk, in the order of its ids."""
        boxes = self.disk.engine.tables._boxes
        return sorted((mail for box in boxes.values() for mail in box.values()), key=_id_of)

    @property
    def dead(self) -> list[DeadLetter]:
        """All dead letters on the disk, in the order of their ids."""
        return list(self.disk.engine.tables.read_dead(DeadFilter(), 0, 1_000_000))


def _id_of(mail: Mail) -> int:
    return mail.id


def texts(peer: ScriptedPeer) -> list[object]:
    """Remove what a peer has received; return what the messages say."""
    found = [message.payload["n"] for message in peer.inbox]
    peer.inbox.clear()
    return found


def ack_all(peer: ScriptedPeer) -> list[object]:
    """Ack all that a peer gets, until there is no more; return what the messages say."""
    found: list[object] = []
    while peer.inbox:
        message = peer.next_message()
        found.append(message.payload["n"])
        message.ack({"done": message.payload["n"]})
    return found
