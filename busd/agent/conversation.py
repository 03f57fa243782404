"""A conversation: what was said before, in a file of the workspace; the oldest is forgotten."""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Literal

import msgspec

from busd.agent.folder import append_private, read_lines, write_private

log = logging.getLogger("busd.agent")

MAX_MESSAGES = 100
MAX_BYTES = 128 * 1024
_MAX_FILE_BYTES = 1024 * 1024


class Spoken(msgspec.Struct, frozen=True):
    """What one of the two said."""

    role: Literal["user", "assistant"]
    content: str


_decode = msgspec.json.Decoder(Spoken).decode


class Conversation:
    """The last hundred messages of user and assistant."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._spoken: deque[Spoken] = deque()
        self._load()

    def messages(self) -> list[Spoken]:
        """Return what an endpoint is told of it, oldest first."""
        return list(self._spoken)

    def add(self, asked: str, answered: str) -> None:
        """Remember one question and its answer."""
        news = [Spoken("user", asked), Spoken("assistant", answered)]
        self._spoken.extend(news)
        self._forget()
        if self._file is None:
            return
        try:
            if append_private(self._file, _lines(news)) > _MAX_FILE_BYTES:
                write_private(self._file, _lines(self._spoken))
        except OSError as problem:
            log.warning("%s cannot be written: %s", self._file, problem)

    def _forget(self) -> None:
        """Forget whole exchanges from the beginning: a conversation begins with its user."""
        size = sum(len(each.content) for each in self._spoken)
        while len(self._spoken) > MAX_MESSAGES or size > MAX_BYTES:
            for _ in range(min(2, len(self._spoken))):
                size -= len(self._spoken.popleft().content)

    def _load(self) -> None:
        if self._file is None:
            return
        try:
            line = b"\n"
            for line in read_lines(self._file, _MAX_FILE_BYTES):
                self._load_line(line)
            while self._spoken and self._spoken[0].role != "user":
                self._spoken.popleft()
            self._forget()
            if not line.endswith(b"\n"):
                write_private(self._file, _lines(self._spoken))
        except OSError as problem:
            log.warning("%s cannot be read: %s", self._file, problem)

    def _load_line(self, line: bytes) -> None:
        try:
            self._spoken.append(_decode(line))
        except (msgspec.MsgspecError, RecursionError):
            pass  # cut off, or somebody has been at the file


def _lines(spoken: deque[Spoken] | list[Spoken]) -> bytes:
    return b"".join(msgspec.json.encode(each) + b"\n" for each in spoken)
