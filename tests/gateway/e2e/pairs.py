"""Transcripts of conversations between the clients of two formats, and an agent.

    # tkr and group             the formats of ann and ben, who are in one conversation
    ann enters
    ann says m1 TEXT            words with an id, as far as the format has one
    ben says m2 to m1 TEXT      words that refer to others
    bob gets {…}                the words, as the agent gets them
    bob turn.delta {…}          what the agent does
    bob replies TEXT
    ann < {…}                   a frame that a client gets

All frames stand in the file. Times are `$time`; ids that the gateway makes have a number each.
`python -m tests.gateway.e2e.pairs` writes the lines of what is got anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import anyio
import msgspec

from busd.gateway import Dialect, Emit, Send, SocketFrame
from busd.plugin.loader import bundled_folder, use_folders
from busd.testing.gateway import GatewayClient, GatewayKit, Words, open_gateway

FILE = Path(__file__).with_name("pairs.txt")
FORMATS = ("tkr", "group", "stage", "agentiq")
_NAME = "bakery"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_MADE = re.compile(r"id-\d+|01[0-9a-z]{24}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SAYS = re.compile(r"(?P<id>\w+)(?: to (?P<about>\w+))? (?P<text>.*)")
_GOT = re.compile(r"\w+ (<|gets) ")
SCRIPT = """
ann enters
ben enters
ann says m1 Two rye loaves, “please” – 两个
bob turn.delta {"text": "Let me "}
bob turn.step {"id": "s1", "name": "look up", "tool": "stock", "status": "in_progress"}
bob turn.step {"id": "s1", "name": "look up", "tool": "stock", "payload": 3, "status": "complete"}
bob replies Let me see: 3 are left.
ben says m2 to m1 And one of spelt?
bob replies None of spelt.
ann says m3 Only rye, then.
bob replies Here you are.
"""


def dialect_of(name: str) -> type[Dialect]:
    """Return the dialect of a format."""
    use_folders([bundled_folder()])
    from busd_plugins.agentiq.dialect import AgentIQ
    from busd_plugins.group import GroupChat
    from busd_plugins.stage.dialect import StageChat
    from busd_plugins.tkr import Tkr

    return {"tkr": Tkr, "group": GroupChat, "stage": StageChat, "agentiq": AgentIQ}[name]


def transcripts() -> dict[str, list[str]]:
    """Return the conversations of the file by their titles."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in FILE.read_text().splitlines():
        if line.startswith("# "):
            lines = found.setdefault(line.removeprefix("# "), [])
        elif line:
            lines.append(line)
    return found


class Player:
    """Plays one conversation."""

    def __init__(self, kit: GatewayKit, title: str) -> None:
        self.kit = kit
        self.formats = dict(zip(("ann", "ben"), title.split(" and "), strict=True))
        self.clients: dict[str, GatewayClient] = {}
        self.frames: dict[str, list[Any]] = {"ann": [], "ben": []}
        self.got: list[dict[str, Any]] = []  # by the agent
        self._agent = kit.agent("bob")
        self._words: Words | None = None
        self._names: dict[str, str] = {}

    async def play(self, lines: list[str]) -> AsyncIterator[str]:
        """Yield the lines of a conversation, with what is really got."""
        for line in lines:
            if _GOT.match(line):
                continue
            yield line
            await self._do(*line.split(" ", 2))
            for name, frame in await self.gather():
                yield f"{name} < {self._written(frame)}"
            if " says " in line:
                yield f"bob gets {self._written(self.got[-1])}"

    async def enter(self, who: str) -> None:
        """Connect a client."""
        self.clients[who] = await self._connect(self.formats[who])

    async def say(self, who: str, words_id: str, about: str, text: str) -> None:
        """Have a client say something, and the agent get it."""
        for frame in _said(self.formats[who], words_id, about, text):
            await self.clients[who].receive(frame)
        await self.kit.settle()
        self._words = self._agent.words()
        got = {**self._words.content, "from": self._words.chat, "messageId": self._words.id}
        self.got.append(got)

    def reply(self, text: str) -> None:
        """Have the agent answer the last words."""
        assert self._words is not None
        self._words.reply(text)

    async def gather(self) -> list[tuple[str, Any]]:
        """Return the frames that the clients have got since the last time."""
        await self.kit.settle()
        found = [
            (name, each) for name, client in self.clients.items() for each in _frames_of(client)
        ]
        for name, frame in found:
            self.frames[name].append(frame)
        return found

    async def _do(self, who: str, what: str, said: str = "") -> None:
        if what == "enters":
            await self.enter(who)
        elif what == "replies":
            self.reply(said)
        elif who == "bob":
            assert self._words is not None
            self._words.tell(what, **json.loads(said))
        else:
            found = _SAYS.fullmatch(said)
            assert found is not None, said
            await self.say(who, found["id"], found["about"] or "", found["text"])

    async def _connect(self, name: str) -> GatewayClient:
        abouts: dict[str, dict[str, Any]] = {
            "tkr": {"namespace": "/agents", "query": {"session_id": _NAME}},
            "group": {"room": _NAME},
            "stage": {"query": {"session_id": _NAME}},
            "agentiq": {"query": {"conversation_id": _NAME}},
        }
        return await self.kit.connect(dialect_of(name), **abouts[name])

    def _written(self, frame: Any) -> str:
        text = _TIME.sub("$time", json.dumps(frame, ensure_ascii=False))
        return _MADE.sub(lambda found: self._number_of(found[0]), text)

    def _number_of(self, made: str) -> str:
        return self._names.setdefault(made, f"${len(self._names) + 1}")


def _frames_of(client: GatewayClient) -> Iterator[Any]:
    for output in client.take():
        if isinstance(output, Emit):
            yield {"event": output.event, **msgspec.to_builtins(output.data)}
        elif isinstance(output, Send):
            yield msgspec.json.decode(msgspec.json.encode(output.frame))


def _said(name: str, words_id: str, about: str, text: str) -> Iterator[str | SocketFrame]:
    """Return the frame by which a client says something."""
    frame: dict[str, Any]
    if name == "stage":
        yield text
    elif name == "tkr":
        frame = {"id": words_id, "type": "text", "session_id": _NAME, "from_user": True}
        more = {"in_reply_to": about} if about else {}
        yield SocketFrame("/agents", "message", {**frame, "content": text, **more})
    elif name == "group":
        payload = {"text": text, **({"reply_to": about} if about else {})}
        sender = {"id": "zhang", "type": "user", "name": "张三"}
        yield json.dumps(
            {"message_type": "chat", "message_id": words_id, "sender": sender, "payload": payload}
        )
    else:
        content = {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
        thread = {"thread_id": about} if about else {}
        yield json.dumps({"type": "user_message", "id": words_id, "content": content, **thread})


async def played(title: str, lines: list[str]) -> tuple[list[str], Player]:
    """Return the lines of a conversation as it really goes, and who has played it."""
    async with open_gateway() as kit:
        player = Player(kit, title)
        return [line async for line in player.play(lines)], player


async def main() -> None:
    """Write the file anew."""
    old = transcripts() if FILE.exists() else {}
    titles = [f"{ann} and {ben}" for ann, ben in permutations(FORMATS, 2)]
    blocks = []
    for title in titles:
        lines, _ = await played(title, old.get(title, SCRIPT.strip().splitlines()))
        blocks.append("\n".join([f"# {title}", *lines, ""]))
    FILE.write_text("\n".join(blocks))


if __name__ == "__main__":
    anyio.run(main)
