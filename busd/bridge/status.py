"""The status of a bridge, for `busd bridges` and `busd doctor`."""

from __future__ import annotations

from typing import Literal

import msgspec

STATUS = "bridge_status"  # the type of message that asks a bridge for it
# waiting: for the bus or the other system; conflict: somebody else uses the same token.
BridgeState = Literal["waiting", "connected", "conflict", "unauthorized", "failed"]


class BridgeStatus(msgspec.Struct, kw_only=True):
    """What a bridge does just now. Times are in the format of payloads, "" if there was none."""

    state: BridgeState = "waiting"  # of the other system's side; set by `Bridge.report`
    detail: str = ""
    is_on_bus: bool = False
    last_update_at: str = ""  # something came from the other system
    pushed: int = 0  # messages that the bus has accepted
    posted: int = 0  # parts
    refused: int = 0  # replies that can never be posted, and pushes that were refused
    repeated: int = 0  # parts that may have been posted twice
    queue: int = 0  # replies that wait to be posted
    paused_until: str = ""  # the other system asked to wait
    is_disk_failing: bool = False

    def note_contact(self) -> None:
        """Record that the other system is there, unless the program has reported something."""
        if self.state == "waiting" and not self.detail:
            self.state = "connected"
