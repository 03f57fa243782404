"""The keys that are pressed while an agent answers: a line that grows at its end. Does no I/O.

The terminal neither echoes nor edits then, because it could do neither with words coming in
between. So this does: printable characters, Backspace, Ctrl-U, Ctrl-W, Enter, Ctrl-D on an empty
line, and pastes, whose line ends are part of the text. All other keys are ignored.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import deque

import click

MAX_LINE_BYTES = 1 << 20  # more than a bus takes in one message by default
PROMPT = "> "
CLEAR_LINE = "\r\x1b[K"
PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\[O])", re.S)
_ERASE = "\b \b"


class Keys:
    """What was typed so far, and the lines that were finished."""

    def __init__(self) -> None:
        self.text = ""
        self.lines: deque[str] = deque()
        self.has_ended = False
        self._pending = ""  # begins with an escape sequence that is not complete
        # What is not UTF-8 is noticed when its line is finished.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, chunk: bytes) -> str:
        """Take what was typed; returns what is to be shown of it.

        Raises UnicodeError for a line that is not UTF-8, and UsageError for one without end.
        """
        if not chunk:
            self.has_ended = True
            return ""
        self._pending += self._decoder.decode(chunk)
        shown: list[str] = []
        while self._pending and (taken := self._take_next()) is not None:
            shown.append(taken)
        if len(self.text) + len(self._pending) > MAX_LINE_BYTES:
            raise click.UsageError(f"a line of over {MAX_LINE_BYTES:,} bytes is no message")
        return "".join(shown)

    def clear(self) -> str:
        """Forget what was typed so far; returns it."""
        text, self.text = self.text, ""
        return text

    def hand_over(self) -> str:
        """Forget what was typed so far, for somebody else to read on; returns it."""
        rest, self._pending = self._pending, ""
        pasted = _line_ends(rest.removeprefix(_PASTE_BEGINS))
        return self.clear() + (pasted if rest.startswith(_PASTE_BEGINS) else "")

    def _take_next(self) -> str | None:
        """Take the next key or paste; returns its echo, or None if there is more to come."""
        pending = self._pending
        if not pending.startswith("\x1b"):
            self._pending = pending[1:]
            return self._press(pending[0])
        if pending.startswith(_PASTE_BEGINS):
            pasted, is_complete, rest = pending.removeprefix(_PASTE_BEGINS).partition(_PASTE_ENDS)
            if not is_complete:
                return None
            self._pending = rest
            return self._add(_line_ends(pasted))
        sequence = _SEQUENCE.match(pending)
        if sequence is None:
            return None
        self._pending = pending[sequence.end() :]
        return ""

    def _press(self, key: str) -> str:
        match key:
            case "\r" | "\n":
                line = self.clear()
                self.lines.append(line.encode(errors="surrogateescape").decode())
                return "\n"
            case "\x7f" | "\b":
                return self._erase(1)
            case "\x15":  # Ctrl-U
                return self._erase(len(self.text))
            case "\x17":  # Ctrl-W
                return self._erase(len(self.text) - len(re.sub(r"\S*\s*$", "", self.text)))
            case "\x04":  # Ctrl-D
                self.has_ended = self.has_ended or not self.text
                return ""
            case "\t":
                return self._add(" ")
        is_text = key.isprintable() or "\udc80" <= key <= "\udcff"
        return self._add(key) if is_text else ""

    def _add(self, text: str) -> str:
        self.text += text
        return shown(text)

    def _erase(self, count: int) -> str:
        erased = self.text[len(self.text) - count :]
        self.text = self.text[: len(self.text) - count]
        return _ERASE * sum(map(_width, shown(erased)))


def _line_ends(pasted: str) -> str:
    return pasted.replace("\r\n", "\n").replace("\r", "\n")


def shown(text: str) -> str:
    """Return typed text as it stands on the screen: in one line, and steering nothing."""
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == "\n":
        return "↵"
    return character if character.isprintable() else "\ufffd"


def _width(character: str) -> int:
    """Return how many columns of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
