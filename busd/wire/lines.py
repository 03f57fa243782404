"""Lines: one frame per line of UTF-8, ended by a newline."""

from __future__ import annotations

from busd.errors import ProtocolViolation

# Joining costs a copy of everything; below this it is cheaper than a second buffer in writev().
JOIN_BYTES = 16_384


class LineFramer:
    """Cuts a byte stream into lines; never holds more than one frame's limit of bytes."""

    __slots__ = ("_max_frame_bytes", "_partial", "violation")
    wants_flush = False

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._partial = bytearray()
        self.violation: ProtocolViolation | None = None

    def allow(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Give the frames that `data` completes; sets `violation` when a frame is too long."""
        frames = data.split(b"\n")
        rest = frames.pop()
        if self._partial and frames:
            frames[0] = bytes(self._partial) + frames[0]
            self._partial.clear()
        if rest:
            self._partial += rest
        # A chunk within the limit holds no frame over it, except one begun in an earlier chunk.
        if len(data) + len(self._partial) > self._max_frame_bytes or (
            frames and len(frames[0]) > self._max_frame_bytes
        ):
            return self._within_limit(frames)
        return frames

    def _within_limit(self, frames: list[bytes]) -> list[bytes]:
        """Give the frames before the first one that is too long."""
        limit = self._max_frame_bytes
        for index, frame in enumerate(frames):
            if len(frame.rstrip(b"\r")) > limit:
                return self._give_up(frames[:index])
        if len(self._partial) > limit:
            return self._give_up(frames)
        return frames

    def _give_up(self, good: list[bytes]) -> list[bytes]:
        self._partial.clear()
        self.violation = ProtocolViolation(
            f"frame over {self._max_frame_bytes} bytes", rule="max_frame_bytes", close_code=1009
        )
        return good

    def encode(self, frames: list[bytes]) -> list[bytes]:
        """Give the buffers to write for these frames; empties the list."""
        if len(frames) == 1 and len(frames[0]) > JOIN_BYTES:
            buffers = [frames[0], b"\n"]
        else:
            frames.append(b"")
            buffers = [b"\n".join(frames)]
        frames.clear()
        return buffers

    def encode_close(self, code: int, reason: str) -> list[bytes]:
        """Lines have no closing word: the end of the stream says it."""
        return []

    def encode_ping(self) -> list[bytes]:
        """Lines have no ping: TCP keep-alive finds a dead peer."""
        return []
