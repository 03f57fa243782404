"""The bridge kit: what programs are written with that connect another chat system to the bus.

This module is public: bridges import these names. `Bridge` itself is also a name of `busd`.
"""

from busd.bridge.bridge import Bridge
from busd.bridge.live import LiveError, LivePrompt, LiveTurn
from busd.bridge.messages import ChatEvent, Inbound, Part, Reply
from busd.bridge.pace import Pace
from busd.bridge.refusals import MaybePosted, PushRefused, SlowDown, TooLarge
from busd.bridge.secrets import Secret, read_secret
from busd.bridge.splitting import split_text
from busd.bridge.status import BridgeState, BridgeStatus
from busd.vocabulary.turn_events import Attachment, Option, TurnStep

__all__ = [
    "Attachment",
    "Bridge",
    "BridgeState",
    "BridgeStatus",
    "ChatEvent",
    "Inbound",
    "LiveError",
    "LivePrompt",
    "LiveTurn",
    "MaybePosted",
    "Option",
    "Pace",
    "Part",
    "PushRefused",
    "Reply",
    "Secret",
    "SlowDown",
    "TooLarge",
    "TurnStep",
    "read_secret",
    "split_text",
]
