"""A chat completion as it comes over HTTP: whole, or in server-sent events."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import msgspec

from busd.agent.turn import TurnFailed

_MIB = 1024 * 1024
MAX_ANSWER_CHARACTERS = 512 * 1024  # a frame of the bus holds 1 MiB
_MAX_BUFFER_BYTES = 8 * _MIB
_MAX_STREAM_BYTES = 256 * _MIB  # the events of a stream are far longer than the words in them
_SHOWN_CHARACTERS = 300
_BY_STATUS = {
    400: ("refused", "the endpoint refused the request"),
    401: ("unauthorized", "the endpoint refused the API key"),
    403: ("unauthorized", "the endpoint refused the API key"),
    404: ("refused", "the endpoint does not know the address or the model"),
    429: ("rate_limited", "the endpoint has had too many requests"),
}


class Words(msgspec.Struct):
    """A message, or a piece of one."""

    content: str | None = None


class Choice(msgspec.Struct):
    delta: Words | None = None
    message: Words | None = None
    finish_reason: str | None = None


class Problem(msgspec.Struct):
    message: str | None = None


class Chunk(msgspec.Struct):
    """One event of a stream, or the whole answer."""

    choices: list[Choice] = []
    error: Problem | str | None = None


class Completion:
    """An answer that is being read: bytes in, text out."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: list[str] = []
        self._read_bytes = 0
        self._characters = 0
        self._is_finished = False

    def feed(self, chunk: bytes) -> str:
        """Process a chunk of any size; return the text that it completes."""
        self._read_bytes += len(chunk)
        self._buffer += chunk
        if self._read_bytes > _MAX_STREAM_BYTES or len(self._buffer) > _MAX_BUFFER_BYTES:
            raise _too_long()
        if self._is_document:
            return ""
        before = len(self._answer)
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._take_line(line)
        return "".join(self._answer[before:])

    @property
    def _is_document(self) -> bool:
        """The endpoint does not stream: it gives one object, which no line of a stream can be."""
        return self._buffer.lstrip().startswith(b"{")

    def _take_line(self, line: bytes) -> None:
        """Read a line of the stream: only those with data matter."""
        name, _, value = line.strip().partition(b":")
        if name == b"data":
            self._take_event(value.strip())

    def _take_event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._is_finished = True
        elif data:
            self._take_chunk(_read(data))

    def _take_chunk(self, chunk: Chunk) -> None:
        if chunk.error is not None:
            said = chunk.error if isinstance(chunk.error, str) else chunk.error.message or ""
            raise TurnFailed(f"the endpoint failed: {said[:_SHOWN_CHARACTERS]}", code="unavailable")
        for choice in chunk.choices[:1]:
            words = choice.delta or choice.message
            if words is not None and words.content:
                self._add(words.content)
            if choice.finish_reason is not None:
                self._is_finished = True

    def _add(self, text: str) -> None:
        self._answer.append(text)
        self._characters += len(text)
        if self._characters > MAX_ANSWER_CHARACTERS:
            raise _too_long()

    def finish(self) -> str:
        """Return the whole answer; raise TurnFailed if it broke off."""
        if self._is_document:
            self._take_chunk(_read(self._buffer))
            self._is_finished = True
        else:
            self._take_line(self._buffer)
        if not self._is_finished:
            raise TurnFailed("the endpoint's answer broke off", code="unavailable")
        answer = "".join(self._answer)
        if not answer:
            raise TurnFailed("the endpoint gave an empty answer", code="empty")
        return answer


def _too_long() -> TurnFailed:
    return TurnFailed("the endpoint's answer is too long", code="full")


def _read(data: bytes) -> Chunk:
    try:
        return msgspec.json.decode(data, type=Chunk)
    except (msgspec.MsgspecError, RecursionError):
        raise TurnFailed("the endpoint's answer is no chat completion", code="bad_answer") from None


def refusal_of(status: int, body: bytes, key: str) -> TurnFailed:
    """Return what to tell the user of a refusal; of the key not even what the endpoint says."""
    code, what = _BY_STATUS.get(status, ("unavailable", "the endpoint failed"))
    if status < 500 and status not in _BY_STATUS:
        code, what = "refused", "the endpoint gave an answer that we do not know"
    said = "" if code == "unauthorized" else _message_in(body)
    if key:
        said = said.replace(key, "…")
    return TurnFailed(f"{what} (HTTP {status}){': ' if said else ''}{said}", code=code)


def _message_in(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body, type=Chunk).error
    except (msgspec.MsgspecError, RecursionError):
        return ""
    said = error if isinstance(error, str) else error.message if error else ""
    return (said or "")[:_SHOWN_CHARACTERS]


def retry_seconds_of(header: str) -> float | None:
    """Read a Retry-After: seconds, or a date; None if it is neither."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
