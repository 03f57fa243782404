"""Play transcripts: whole conversations between clients, the gateway and agents on the bus.

    ann connects /agents session_id=s1&agent_id=phil
    ann > 1 message {"id": "m1", …}      an event of the client; 1 is the number of its ack
    ann < ack 1 {"status": "delivered", …}
    ann < message {"type": "text", …}    an event to the client
    * phil joins                         an agent joins the bus
    * phil gets "hello" {"senderId": …}  what an agent gets: words with members, or an event
    * phil turn.delta {"text": "hel"}    an event of the turn whose words the agent has got last
    * phil tells task.updated {…}        an event of no turn
    * phil tg_reply "hello yourself"
    ann leaves

Everything that a client is sent stands in the transcript, in its order. `"$any"` stands for any
value, `"$name"` for one that is the same wherever the name stands in the conversation, and a
member `"…"` for further members.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from busd.gateway import Acknowledge, Emit, SocketFrame
from busd.testing.gateway import GatewayAgent, GatewayClient, GatewayKit, Words
from busd_plugins.tkr.dialect import Tkr

_MORE = "…"


class Transcript(msgspec.Struct):
    """One conversation: its title, and its lines with their numbers in the file."""

    title: str
    lines: list[tuple[int, str]]


def read_transcripts(text: str) -> Iterator[Transcript]:
    """Return the conversations of a file."""
    found: Transcript | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# "):
            if found is not None:
                yield found
            found = Transcript(line.removeprefix("# "), [])
        elif line and found is not None:
            found.lines.append((number, line))
    if found is not None:
        yield found


class Player:
    """Whoever plays a transcript: all its clients and agents."""

    def __init__(self, kit: GatewayKit) -> None:
        self.kit = kit
        self.received: list[tuple[str, Any]] = []  # events of clients, for their schema
        self.sent: list[tuple[str, Any]] = []  # events to clients
        self._clients: dict[str, GatewayClient] = {}
        self._agents: dict[str, GatewayAgent] = {}  # those that have joined the bus
        self._words: dict[str, Words] = {}  # that an agent has got last
        self._names: dict[str, Any] = {}

    async def play(self, transcript: Transcript) -> None:
        for number, line in transcript.lines:
            try:
                await self._play(line)
            except AssertionError as problem:
                raise AssertionError(f"line {number}: {line}\n{problem}") from None
        self._expect_nothing()

    async def _play(self, line: str) -> None:
        who, what, rest = line.split(" ", 2) if line.count(" ") > 1 else (*line.split(" "), "")
        if what == "<":
            self._read(self._clients[who], rest)
            return
        self._expect_nothing()
        if who == "*":
            verb, _, said = rest.partition(" ")
            self._act(what, verb, said)
        elif what == "connects":
            await self._connect(who, *rest.split(" "))
        elif what == "leaves":
            await self._clients.pop(who).leave()
        else:
            assert what == ">", f"no line begins with {what}"
            await self._send(self._clients[who], rest)
        await self.kit.settle()

    # Clients

    async def _connect(self, who: str, namespace: str, query: str = "") -> None:
        self._clients[who] = await self.kit.connect(
            Tkr, namespace=namespace, query=dict(parse_qsl(query)), socket_id=f"socket-of-{who}"
        )

    async def _send(self, client: GatewayClient, said: str) -> None:
        found = re.fullmatch(r"(?:(\d+) )?([\w:]+)(?: (.*))?", said)
        assert found, "an event is: NUMBER NAME DATA"
        number, event, data = found[1], found[2], json.loads(found[3] or "null")
        self.received.append((event, data))
        namespace = client.dialect.hello.namespace
        await client.receive(Numbered(namespace, event, data, number is not None, number or ""))

    def _read(self, client: GatewayClient, wanted: str) -> None:
        assert client.outputs, "nothing was sent"
        output = client.outputs.pop(0)
        kind, data = "", None
        if isinstance(output, Acknowledge):
            assert isinstance(output.frame, Numbered)
            kind, data = f"ack {output.frame.number}", output.data
        elif isinstance(output, Emit):
            kind, data = output.event, output.data
            self.sent.append((kind, data))
        data = msgspec.json.decode(msgspec.json.encode(data))
        name, _, text = wanted.partition(" {")
        expected = json.loads("{" + text) if text else None
        name = name.removesuffix(" null")
        shown = f"{kind} {json.dumps(data, ensure_ascii=False)}"
        assert (name, self._fits(expected, data)) == (kind, True), f"was sent: {shown}"

    def _expect_nothing(self) -> None:
        for name, client in self._clients.items():
            outputs = [msgspec.json.encode(each).decode() for each in client.outputs]
            assert not outputs, f"{name} was sent besides: {outputs}"

    def _fits(self, expected: Any, found: Any) -> bool:
        if isinstance(expected, str) and expected.startswith("$"):
            return expected == "$any" or self._names.setdefault(expected, found) == found
        if isinstance(expected, dict) and isinstance(found, dict):
            named = expected.keys() - {_MORE}
            is_complete = found.keys() == named or (_MORE in expected and named <= found.keys())
            return is_complete and all(self._fits(expected[name], found[name]) for name in named)
        if isinstance(expected, list) and isinstance(found, list):
            return len(expected) == len(found) and all(map(self._fits, expected, found))
        return type(expected) is type(found) and bool(expected == found)

    # Agents

    def _act(self, name: str, what: str, said: str) -> None:
        if what == "joins":
            self._agents[name] = self.kit.agent(name)
        elif what == "gets":
            self._get(self._agents[name], said)
        elif what == "tg_reply":
            self._words[name].reply(json.loads(said))
        elif what == "tells":
            event, _, data = said.partition(" ")
            self._agents[name].tell(self._words[name].chat, event, json.loads(data))
        else:
            self._words[name].tell(what, **json.loads(said))

    def _get(self, agent: GatewayAgent, wanted: str) -> None:
        if wanted.startswith('"'):
            words = agent.words()
            if "prompt_id" not in words.content:  # an answer belongs to the turn that is running
                self._words[agent.name] = words
            text, end = json.JSONDecoder().raw_decode(wanted)
            members = json.loads(wanted[end:] or "{}")
            found = {name: words.content.get(name) for name in members}
            assert words.text == text, f"got {words.content}"
            assert self._fits(members, found), f"got {words.content}"
            return
        name, _, data = wanted.partition(" ")
        event = agent.event()
        assert event.pop("event") == name
        assert self._fits(json.loads(data), event), f"got {event}"


class Numbered(SocketFrame):
    """An event with the number that its ack has in the transcript."""

    number: str = ""
