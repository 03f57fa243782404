"""The gateway of the local Discord: sessions that are begun, resumed and ended."""

from __future__ import annotations

import asyncio
import zlib

import msgspec
from aiohttp import WSMsgType, web

from tests.plugins.discord.world import (
    APPLICATION,
    BOT,
    GUILD,
    THREAD,
    Json,
    World,
    member_json,
    user_json,
)

_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _RECONNECT = 0, 1, 2, 6, 7
_INVALID_SESSION, _HELLO, _HEARTBEAT_ACK = 9, 10, 11
_BAD_TOKEN, _BAD_INTENTS, _BAD_SEQUENCE = 4004, 4014, 4007
_HEARTBEAT_MS = 41_250
_encode = msgspec.json.encode


class Session:
    """A session of the gateway; it outlives its connection."""

    def __init__(self, name: str, intents: int) -> None:
        self.name = name
        self.intents = intents
        self.events: list[Json] = []
        self.line: Line | None = None


class Line:
    """A connection to the gateway, compressed if the client asks for it."""

    def __init__(self, socket: web.WebSocketResponse, *, is_compressed: bool) -> None:
        self.socket = socket
        self._zlib = zlib.compressobj() if is_compressed else None
        self._queue: asyncio.Queue[Json | int] = asyncio.Queue()

    def send(self, frame: Json) -> None:
        self._queue.put_nowait(frame)

    def close(self, code: int) -> None:
        """Close it after what was sent."""
        self._queue.put_nowait(code)

    async def run(self) -> None:
        while True:
            frame = await self._queue.get()
            if isinstance(frame, int):
                await self.socket.close(code=frame)
                return
            data = _encode(frame)
            if self._zlib is None:
                await self.socket.send_str(data.decode())
            else:
                packed = self._zlib.compress(data) + self._zlib.flush(zlib.Z_SYNC_FLUSH)
                await self.socket.send_bytes(packed)


class Gateway:
    """Serves the events of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.port = 0
        self.sessions: dict[str, Session] = {}
        self.identified = 0
        self.resumed = 0
        self.beats = 0
        self.frames: list[Json] = []  # that clients have sent
        self._lines: set[Line] = set()
        world.dispatch = self.dispatch

    @property
    def gateway_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/gateway"

    # Events

    def dispatch(self, name: str, data: Json) -> None:
        """Send an event to all sessions; those without a connection get it when they resume."""
        for session in self.sessions.values():
            shown: Json | None = data
            if name.startswith("MESSAGE_"):
                shown = self.world.seen_by(session.intents, data)
            if shown is not None:
                self._put(session, name, shown)

    def _put(self, session: Session, name: str, data: Json) -> None:
        frame = {"op": _DISPATCH, "t": name, "s": len(session.events) + 1, "d": data}
        session.events.append(frame)
        if session.line is not None:
            session.line.send(frame)

    # What goes wrong

    def drop(self, code: int = 4000) -> None:
        """Close all connections; the sessions can be resumed."""
        for line in list(self._lines):
            line.close(code)

    def ask_to_reconnect(self) -> None:
        self._tell({"op": _RECONNECT, "d": None})

    def invalidate(self) -> None:
        """End all sessions."""
        self._tell({"op": _INVALID_SESSION, "d": False})
        self.sessions.clear()

    def _tell(self, frame: Json) -> None:
        for line in list(self._lines):
            line.send(frame)

    @property
    def is_joined(self) -> bool:
        return any(each.line is not None for each in self.sessions.values())

    # Gateway

    async def gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=4096)
        await socket.prepare(request)
        line = Line(socket, is_compressed=request.query.get("compress") == "zlib-stream")
        line.send({"op": _HELLO, "d": {"heartbeat_interval": _HEARTBEAT_MS}})
        self._lines.add(line)
        writer = asyncio.create_task(line.run())
        try:
            async for message in socket:
                if message.type == WSMsgType.TEXT:
                    self._hear(line, msgspec.json.decode(message.data))
        finally:
            self._lines.discard(line)
            for session in self.sessions.values():
                if session.line is line:
                    session.line = None
            writer.cancel()
            self.world.wake()
        return socket

    def _hear(self, line: Line, frame: Json) -> None:
        self.frames.append(frame)
        data = frame.get("d")
        if frame["op"] == _HEARTBEAT:
            self.beats += 1
            line.send({"op": _HEARTBEAT_ACK})
        elif frame["op"] == _IDENTIFY:
            assert isinstance(data, dict)
            self._identify(line, data)
        elif frame["op"] == _RESUME:
            assert isinstance(data, dict)
            self._resume(line, data)
        self.world.wake()

    def _identify(self, line: Line, data: Json) -> None:
        if data["token"] != self.world.token:
            return line.close(_BAD_TOKEN)
        privileged = data["intents"] & (1 << 15)
        if privileged and not self.world.intents & privileged:
            return line.close(_BAD_INTENTS)
        self.identified += 1
        session = Session(f"session{self.identified}", data["intents"])
        self.sessions[session.name] = session
        session.line = line
        self._put(
            session,
            "READY",
            {
                "v": 10,
                "user": user_json(BOT),
                "guilds": [{"id": str(GUILD), "unavailable": True}],
                "session_id": session.name,
                "resume_gateway_url": self.gateway_url,
                "application": {"id": str(APPLICATION), "flags": 0},
            },
        )
        self._put(session, "GUILD_CREATE", self._guild())
        return None

    def _resume(self, line: Line, data: Json) -> None:
        if data["token"] != self.world.token:
            return line.close(_BAD_TOKEN)
        session = self.sessions.get(data["session_id"] or "")
        if session is None:
            return line.send({"op": _INVALID_SESSION, "d": False})
        if data["seq"] > len(session.events):
            return line.close(_BAD_SEQUENCE)
        self.resumed += 1
        session.line = line
        for event in session.events[data["seq"] :]:
            line.send(event)
        self._put(session, "RESUMED", {})
        return None

    def _guild(self) -> Json:
        shared = [each for each in self.world.channels.values() if each.kind != 1]
        return {
            "id": str(GUILD),
            "name": "The server",
            "owner_id": "1",
            "unavailable": False,
            "member_count": 3,
            "joined_at": "2026-01-01T00:00:00+00:00",
            "large": False,
            "roles": [_everyone()],
            "channels": [each.as_json for each in shared if each.kind != THREAD],
            "threads": [each.as_json for each in shared if each.kind == THREAD],
            "members": [member_json(BOT)],
            "emojis": [],
            "stickers": [],
            "features": [],
            "voice_states": [],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "nsfw_level": 0,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "afk_timeout": 300,
            "system_channel_flags": 0,
            "premium_progress_bar_enabled": False,
        }


def _everyone() -> Json:
    return {
        "id": str(GUILD),
        "name": "@everyone",
        "color": 0,
        "colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None},
        "hoist": False,
        "position": 0,
        "permissions": "0",
        "managed": False,
        "mentionable": False,
        "flags": 0,
    }
