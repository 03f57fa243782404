"""The other side of a chat: an agent that says what the test wants."""

from __future__ import annotations

import queue
from typing import Any

from busd import SyncClient
from busd.client.sync import SyncIncoming
from tests.daemons import PATIENCE_SECONDS


class Partner:
    """Acks whatever it hears, and keeps it until the test asks."""

    def __init__(self, peer: SyncClient) -> None:
        self.peer = peer
        self.address = peer.client_id
        self._heard: queue.Queue[SyncIncoming] = queue.Queue()
        peer.on()(self._hear)

    def _hear(self, message: SyncIncoming) -> None:
        self._heard.put(message)

    def hear(self) -> SyncIncoming:
        """Return the next message."""
        return self._heard.get(timeout=PATIENCE_SECONDS)

    def tell(self, message: SyncIncoming, event: str, /, **data: Any) -> None:
        """Send an event of the turn that `message` began."""
        self.send(
            f"events:{message.sender}",
            "agent_event",
            {"event": event, "data": {"turn": message.message_id, **data}},
        )

    def reply(self, message: SyncIncoming, text: str) -> None:
        about = {"reply_to_message_id": message.message_id}
        self.send(message.sender, "tg_reply", {"text": text}, **about)

    def send(self, to: str, kind: str, content: Any, **beside: Any) -> None:
        [ack] = self.peer.send(to, {"type": kind, "content": content, **beside}).acks
        assert ack.success, ack
