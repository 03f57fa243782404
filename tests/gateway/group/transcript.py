"""Conversations written down: what clients send, what happens, and what clients get.

    # title
    * open 张三 user123         a client connects, as this user; "-": not identified yet
    > 张三 {…}                  it sends a frame
    < 张三 {…}                  it gets a frame

Other events: `close NAME`, and what an agent does: `delta TEXT`, `step JSON`, `reply TEXT`,
`ask TYPE|TEXT|OPTION…`, `fail TEXT`, `task JSON`; `said JSON` are words of another dialect. Ids and
times that the gateway makes are left out. `python -m tests.gateway.group.transcript` writes the
lines with `<` anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from busd.gateway import Author, Entry, Kind, Said, Step, Task
from tests.gateway.group.hall import NOW, Client, Hall, Json

FILE = Path(__file__).with_name("transcripts.txt")


class Transcript(NamedTuple):
    """One conversation."""

    title: str
    lines: list[str]


def read_transcripts() -> list[Transcript]:
    """Return all conversations of the file."""
    found: list[Transcript] = []
    for line in FILE.read_text().splitlines():
        if line.startswith("# "):
            found.append(Transcript(line[2:], []))
        elif line:
            found[-1].lines.append(line)
    return found


def play(transcript: Transcript) -> Iterator[str]:
    """Yield the lines of a conversation, with what clients really get."""
    hall = Hall()
    clients: dict[str, Client] = {}
    for line in transcript.lines:
        kind, said = line[0], line[2:]
        if kind == "<":
            continue
        yield line
        if kind == ">":
            name, _, frame = said.partition(" ")
            clients[name].send(frame)
        else:
            happen(hall, clients, *said.partition(" ")[::2])
        for name, client in clients.items():
            yield from (f"< {name} {written(frame)}" for frame in client.frames)
            client.frames.clear()


def happen(hall: Hall, clients: dict[str, Client], event: str, said: str) -> None:
    """Let something happen."""
    read: Callable[[], Json] = lambda: json.loads(said)  # noqa: E731
    match event:
        case "open":
            name, _, user = said.partition(" ")
            if user not in ("", "-", *hall.members):
                hall.members.append(user)
            clients[name] = hall.open({"": "owner", "-": ""}.get(user, user))
        case "close":
            clients.pop(said).leave()
        case "delta":
            hall.delta(said)
        case "step":
            hall.step(msgspec.json.decode(said, type=Step))
        case "ask":
            kind, text, *options = said.split("|")
            hall.ask(kind, text, *options)
        case "reply":
            hall.reply(said)
        case "fail":
            hall.fail(said)
        case "task":
            task = msgspec.json.decode(said, type=Task)
            action = "updated" if task.task_id in hall.tasks else "created"
            hall.show(hall.change_task(task, Author("scribe", "agent", "书记员"), action))
        case "said":
            entry = msgspec.convert({"dialect": "agentiq", **read()}, Entry)
            hall.show(Said(hall.room, hall.keep(entry, Kind.WORDS), False))
        case _:
            raise ValueError(f"unknown event: {event}")


def written(frame: Json) -> str:
    """Return a frame without the ids and times that the gateway made."""
    shown = {
        name: value
        for name, value in frame.items()
        if not (name == "message_id" and is_made(value))
        and not (name == "timestamp" and value == NOW)
    }
    if "session_id" in shown["payload"]:
        shown["payload"]["session_id"] = "session789"
    return json.dumps(shown, ensure_ascii=False)


def is_made(message_id: object) -> bool:
    """Return whether an id is one that the gateway made."""
    return len(str(message_id)) == len("00000000-0000-4000-8000-000000000000")


def main(transcripts: Iterable[Transcript]) -> None:
    """Write the file anew."""
    text = (f"# {each.title}\n" + "\n".join(play(each)) + "\n" for each in transcripts)
    FILE.write_text("\n".join(text))


if __name__ == "__main__":
    main(read_transcripts())
