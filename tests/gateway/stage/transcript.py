"""Transcripts: whole conversations in a file, one line for each frame and event.

    # A turn                          a conversation begins
    > text of a frame                 the client sends it
    < {"status": "success", …}        the client gets it
    * delta Hello                     something happens: see `_EVENTS`

A frame that comes must have the members of its line, and no others but those that the first line of
the file names: `! beside: id timestamp`. `* open a=1` begins the connection with a query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import fields

from busd.gateway import Author, Dialect, Said
from tests.gateway.stage.line import Frame, Line


class Transcript(NamedTuple):
    """One conversation."""

    title: str
    lines: list[str]
    beside: frozenset[str]


def transcripts_in(path: Path) -> list[Transcript]:
    first, *blocks = path.read_text().split("\n# ")
    beside = frozenset(first.partition("! beside:")[2].split())
    found = []
    for block in blocks:
        title, *lines = block.splitlines()
        found.append(Transcript(title, [line for line in lines if line.strip()], beside))
    return found


def play(transcript: Transcript, dialect: type[Dialect]) -> None:
    """Play a conversation; every frame that is sent stands in it, in this order."""
    line = Line(dialect)
    waiting: Iterator[Frame] = iter(())
    for number, entry in enumerate(transcript.lines):
        where = f"{transcript.title}, line {number + 1}: {entry}"
        mark, _, rest = entry.partition(" ")
        if mark == "<":
            frame = next(waiting, None)
            assert frame is not None, f"{where}: nothing came"
            _compare(frame, json.loads(rest), transcript.beside, where)
            assert is_described(frame, dialect), f"{where}: no message of the dialect: {frame}"
            continue
        assert list(waiting) == [], f"{where}: frames before it"
        if mark == ">":
            waiting = iter(line.send(rest))
        elif rest.startswith("open"):
            query = dict(pair.split("=", 1) for pair in rest.split()[1:])
            line = Line(dialect, query)
            waiting = iter(line.open())
        else:
            assert mark == "*", where
            waiting = iter(_happen(line, rest))
    assert list(waiting) == [], f"{transcript.title}: frames at the end"


def _compare(frame: Frame, wanted: Frame, beside: frozenset[str], where: str) -> None:
    assert {name: frame.get(name) for name in wanted} == wanted, where
    assert set(frame) <= set(wanted) | beside, where


def is_described(frame: Frame, dialect: type[Dialect]) -> bool:
    """Return whether a message that the dialect declares has all members of a frame."""
    for kind in dialect.messages:
        if kind.direction == "send":
            names = {field.encode_name for field in fields(kind.struct)}
            try:
                msgspec.convert(frame, kind.struct)
            except msgspec.ValidationError:
                continue
            if set(frame) <= names:
                return True
    return False


def _happen(line: Line, words: str) -> list[Frame]:
    kind, _, rest = words.partition(" ")
    return _EVENTS[kind](line, rest)


def _about(rest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rest)
    return found


def _closed(line: Line, rest: str) -> list[Frame]:
    assert line.closed is not None
    return []


def _said(line: Line, rest: str) -> list[Frame]:
    name, _, text = rest.partition(": ")
    conversation = next(reversed(line.turns), "c1")
    return line.show(Said(conversation, line.entry(text, author=Author(name)), is_own=False))


def _fail(line: Line, rest: str) -> list[Frame]:
    code, _, message = rest.partition(" ")
    return line.fail(code, message)


_EVENTS: dict[str, Callable[[Line, str], list[Frame]]] = {
    "delta": lambda line, rest: line.delta(json.loads(rest)),
    "step": lambda line, rest: line.step(**_about(rest)),
    "ask": lambda line, rest: line.ask(**_about(rest)),
    "reply": lambda line, rest: line.reply(rest),
    "fail": _fail,
    "timeout": lambda line, rest: line.time_out(rest or "p1"),
    "cancelled": lambda line, rest: line.cancel(),
    "said": _said,
    "closed": _closed,
}
