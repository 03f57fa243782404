"""The transcripts of the reference's own peers, on a real bus: by uid, and by token."""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from busd_plugins.bub.chats import Chat
from tests.access.guarded import new_token
from tests.daemons import Daemon, Loop, open_daemon
from tests.test_conformance import Case, play, read_table
from tests.test_guides import blocks_of
from tests.wire_peers import Peer, WebSocketPeer, connect, open_http, open_tcp, upgrade_lines

HERE = Path(__file__).parent
CASES = list(read_table((HERE / "transcripts.txt").read_text()))
# A worker that never joins: its part is played by the test.
ABSENT = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
OURS: Mapping[str, object] = {"workers.default.spawner": "subprocess", "agents.stop_seconds": 1.0}
TOKENS = {"bridge": "telegram-bridge", "agent": "bub-agents"}


def workers_of(case: Case) -> dict[str, object]:
    """Give the settings that say who answers: a worker of ours, or whoever the transcript says."""
    if case.settings.get("workers") == "echo":
        return dict(OURS)
    return {**OURS, "workers.default.agent": ABSENT}


def steps_of(case: Case) -> Case:
    """Put the client ids of agents in the place of AGENT(chat)."""
    steps = [
        (who, verb, re.sub(r"AGENT\((.*?)\)", lambda found: agent_of(found[1]), text))
        for who, verb, text in case.steps
    ]
    return Case(case.name, {}, steps)


def agent_of(chat_id: str) -> str:
    return Chat("telegram", chat_id).agent_id


def no_token(name: str) -> str:
    raise AssertionError("these peers know no tokens")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_existing_peers_of_our_own_user_need_no_token(
    case: Case, loop: Loop, opened: ExitStack
) -> None:
    """In policy strict, which is the default."""
    with open_daemon(loop, {**workers_of(case), "policy": "strict"}) as daemon:

        def open_peer(*, is_vouched_for: bool = True) -> Peer:
            peer = connect(daemon, "ws")
            opened.callback(peer.close)
            return peer

        play(steps_of(case), open_peer, "", no_token)


@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.name)
def test_existing_peers_with_tokens_need_only_the_grants_of_the_guide(
    case: Case, loop: Loop, opened: ExitStack
) -> None:
    """Where the kernel is not asked: a token in the address, as existing clients can have it."""
    with open_with_grants(loop, workers_of(case)) as daemon:
        tokens = {who: new_token(daemon, name) for who, name in TOKENS.items()}
        openers = iter([who for who, verb, _ in case.steps if verb == "connects"])

        def open_peer(*, is_vouched_for: bool = True) -> Peer:
            who = next(openers)
            if who in tokens:
                return open_with_password(daemon, tokens[who], opened)
            operator = connect(daemon, "unix")
            opened.callback(operator.close)
            return operator

        play(steps_of(case), open_peer, "", no_token)


@contextmanager
def open_with_grants(loop: Loop, settings: Mapping[str, object]) -> Iterator[Daemon]:
    """Run a strict bus with the grants of docs/bub-peers.md."""
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    [grants] = [text for _, text in blocks_of("bub-peers.md", "toml") if "[[grant]]" in text]
    (folder / "conf.d").mkdir()
    (folder / "conf.d/grants.toml").write_text(grants)
    strict = {**settings, "policy": "strict", "identify_loopback": False}
    with open_daemon(loop, strict, folder=folder) as daemon:
        yield daemon


def open_with_password(daemon: Daemon, token: str, opened: ExitStack) -> Peer:
    """Open a WebSocket as clients do whose address has a user and a password."""
    peer = WebSocketPeer(open_tcp(daemon.port))
    daemon.visitors.add(peer.sock)
    opened.callback(peer.close)
    basic = base64.b64encode(f"bub:{token}".encode()).decode()
    status, _ = open_http(peer, *upgrade_lines(f"Authorization: Basic {basic}"))
    assert status == 101
    return peer
