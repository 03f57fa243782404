"""The conformance table: every transcript of `data/conformance.txt`, on all transports and loops.

# §3.1 the name of a case, beginning with the paragraph of the protocol
! delivery.ack_seconds = 0.5        a setting of the daemon, if it is not the default
alice joins agent:alice~            connects and initializes; ~ is different for each run
alice joins agent:a~ with token t   the same, but not as the owner of the bus: with a token
alice connects                      connects and says nothing
alice connects from afar            the same, but never by a Unix socket, where the kernel vouches
alice > {"jsonrpc": "2.0", …}       sends this text as one frame; ␍ is a carriage return, ␠ a
                                    space that would not be seen at the end of a line
alice < {"jsonrpc": "2.0", …}       gets exactly this next: "$name" is bound where it is first
                                    seen, and must be the same wherever it is seen again
alice gets nothing                  has nothing waiting but the answer to a ping
alice leaves                        closes its connection
alice misses bob                    waits until the bus says that bob is gone
alice is closed                     sees the bus close its connection
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import DaemonWith
from tests.wire_peers import Json, Peer, Transport, connect, until_gone

_TABLE = Path(__file__).parent / "data" / "conformance.txt"
_FORMATS = {
    "messageId": r"msg_[0-9A-HJKMNP-TV-Z]{26}",
    "serverId": r"bus-[0-9a-f]+",
    "connectionId": r"conn-\d+",
    "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "version": r"\d+\.\d+\.\d+\S*",
}


class OpenPeer(Protocol):
    """Opens a connection; the kernel vouches for one that comes by a Unix socket."""

    def __call__(self, *, is_vouched_for: bool = True) -> Peer: ...


@dataclass
class Case:
    """One transcript of the table."""

    name: str
    settings: dict[str, Json] = field(default_factory=dict)
    steps: list[tuple[str, str, str]] = field(default_factory=list)


def read_table(text: str) -> Iterator[Case]:
    """Return the cases of the table in order."""
    case: Case | None = None
    for line in text.splitlines():
        if line.startswith("# "):
            if case:
                yield case
            case = Case(line.removeprefix("# "))
        elif line.startswith("! ") and case:
            name, _, value = line.removeprefix("! ").partition(" = ")
            case.settings[name] = json.loads(value)
        elif line.strip() and case:
            peer, verb, *rest = line.split(" ", 2)
            case.steps.append((peer, verb, rest[0] if rest else ""))
    if case:
        yield case


CASES = list(read_table(_TABLE.read_text()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_bus_answers_as_the_protocol_says(
    case: Case, daemon_with: DaemonWith, transport: Transport, suffix: str, opened: ExitStack
) -> None:
    daemon = daemon_with(case.settings)

    def open_peer(*, is_vouched_for: bool = True) -> Peer:
        is_afar = transport == "unix" and not is_vouched_for
        peer = connect(daemon, "tcp" if is_afar else transport)
        opened.callback(peer.close)
        return peer

    def make_token(name: str) -> str:
        with closing(connect(daemon, "unix")) as owner:
            owner.initialize(f"owner{suffix}")
            made: str = owner.call("bus.newToken", {"name": name})["token"]
            return made

    play(case, open_peer, suffix, make_token)


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


def play(case: Case, open_peer: OpenPeer, suffix: str, make_token: Callable[[str], str]) -> None:
    """Do what the transcript says and compare what comes back."""
    stage = Stage(open_peer, suffix, make_token)
    for who, verb, text in case.steps:
        try:
            stage.act(who, verb, text.replace("~", suffix))
        except AssertionError as problem:
            raise AssertionError(f"{case.name}\nat: {who} {verb} {text}\n{problem}") from None


class Stage:
    """The peers of one case and the values that were seen in it."""

    def __init__(self, open_peer: OpenPeer, suffix: str, make_token: Callable[[str], str]) -> None:
        self._open_peer = open_peer
        self._suffix = suffix
        self._make_token = make_token
        self._tokens: dict[str, str] = {}
        self._peers: dict[str, Peer] = {}
        self._seen: dict[str, Json] = {}

    def act(self, who: str, verb: str, text: str) -> None:
        if verb in ("joins", "connects"):
            name, _, token = text.partition(" with token ")
            is_vouched_for = not token and text != "from afar"
            self._peers[who] = peer = self._open_peer(is_vouched_for=is_vouched_for)
            if verb == "joins":
                peer.initialize(name, **({"auth": {"token": self._token(token)}} if token else {}))
            return
        peer = self._peers[who]
        if verb == ">":
            peer.send_bytes(self._fill_in(text).encode())
        elif verb == "<":
            self._compare(peer.next_json(), json.loads(text), "")
        elif (verb, text) == ("gets", "nothing"):
            peer.expect_nothing()
        elif (verb, text) == ("is", "closed"):
            peer.expect_close()
        elif verb == "misses":
            until_gone(text, peer)
        else:
            assert verb == "leaves", f"what is {verb!r}?"
            peer.close()

    def _token(self, name: str) -> str:
        if name not in self._tokens:
            self._tokens[name] = self._make_token(f"{name}{self._suffix}")
        return self._tokens[name]

    def _fill_in(self, text: str) -> str:
        """Put what was seen before in the place of its name."""
        text = text.replace("␍", "\r").replace("␠", " ")
        return re.sub(r'"\$(\w+)"', lambda found: json.dumps(self._seen[found[1]]), text)

    def _compare(self, got: Json, wanted: Json, at: str) -> None:
        if isinstance(wanted, str) and wanted.startswith("$"):
            self._bind(wanted.removeprefix("$"), got, at)
        elif isinstance(wanted, dict) and isinstance(got, dict):
            assert sorted(got) == sorted(wanted), f"{at}: members of {got}"
            for name, value in wanted.items():
                self._compare(got[name], value, f"{at}.{name}")
        elif isinstance(wanted, list) and isinstance(got, list):
            got, wanted = self._sorted(got), self._sorted(wanted)
            assert len(got) == len(wanted), f"{at}: length of {got}"
            for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
                self._compare(one, other, f"{at}[{index}]")
        else:
            assert (type(got), got) == (type(wanted), wanted), f"{at}: {got!r} != {wanted!r}"

    def _bind(self, name: str, got: Json, at: str) -> None:
        if name == "any":
            return
        pattern = _FORMATS.get(name.rstrip("0123456789"))
        assert pattern is None or re.fullmatch(pattern, got), f"{at}: {got!r} is no {name}"
        assert self._seen.setdefault(name, got) == got, f"{at}: {got!r} is not the {name} of before"

    def _sorted(self, value: Json) -> Json:
        """Put lists whose order is open (acks, peers, batches) into one order."""
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            return value
        if all("connectionId" in each for each in value):  # those of other tests are nothing to us
            value = [each for each in value if each["clientId"].endswith(self._suffix)]
        return sorted(
            value, key=lambda each: (*map(str, (each.get("clientId"), each.get("id"), each)),)
        )
