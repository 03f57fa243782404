"""A plugin's place on the bus: it stays while the code behind it is exchanged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from busd.bus.local import LocalPeer
from busd.bus.message import Message
from busd.bus.peer import BUSY_RETRY_SECONDS

if TYPE_CHECKING:
    from busd.bus.bus import Bus
    from busd.plugin.loader import LoadedPlugin
    from busd.plugin.running import RunningPlugin

MAX_HELD_BYTES = 64 * 1024 * 1024


class Place:
    """The peer of one plugin, and who is behind it; while nobody is, messages wait in order."""

    def __init__(self, name: str, bus: Bus, max_waiting: Callable[[], int]) -> None:
        self.peer = LocalPeer(name, bus, self._keep)
        self.holder: RunningPlugin | None = None
        self._bus = bus
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[int, Message]] = deque()
        self._waiting_bytes = 0

    @property
    def is_open(self) -> bool:
        """True if messages go to somebody at once."""
        return self.peer.take != self._keep

    def close(self) -> None:
        """Let messages wait from this moment on."""
        self.peer.take = self._keep

    def open(self, holder: RunningPlugin) -> None:
        """Pass what waits, and all that comes from now on, to the new holder."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        self.peer.take = holder.take
        for call_id, message in waiting:
            # One that waited too long has had its answer.
            if call_id in self.peer.calls and not holder.take(call_id, message):
                delivery = self.peer.calls.pop(call_id)
                delivery.settle_failed(self.peer, "peer is busy", BUSY_RETRY_SECONDS)

    def describe(self, loaded: LoadedPlugin) -> None:
        """Show the holder in `getStatus`."""
        plugin = loaded.plugin
        info = {"name": plugin.name, "version": plugin.version, "description": loaded.about}
        if not loaded.about:
            del info["description"]
        self.peer.info = Raw(msgspec.json.encode(info))

    def keep_only(self, wanted: set[str]) -> None:
        """Drop the subscriptions of an earlier holder that are not those of this one."""
        for pattern in self.peer.subscriptions - wanted - {self.peer.name}:
            self._bus.unsubscribe(self.peer, pattern)

    def leave(self, reason: str) -> None:
        """Release the place; whoever still waits for an answer gets a failed ack."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._bus.leave(self.peer, reason)

    def _keep(self, call_id: int, message: Message) -> bool:
        size = memoryview(message.payload).nbytes
        is_full = len(self._waiting) >= self._max_waiting()
        if is_full or self._waiting_bytes + size > MAX_HELD_BYTES:
            return False
        self._waiting.append((call_id, message))
        self._waiting_bytes += size
        return True
