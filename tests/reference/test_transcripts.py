"""The transcripts of the reference's own peers, on a real bus: by uid, and by token."""

from __future__ import annotations

import base64
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from busd_plugins.bub.chats import Chat
from tests.bus.access.guarded import new_token
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.test_conformance import Case, play, read_table
from tests.test_guides import blocks_of
from tests.wire_peers import Peer, WebSocketPeer, connect, open_http, open_tcp, upgrade_lines

HERE = Path(__file__).parent
CASES = list(read_table((HERE / "transcripts.txt").read_text()))
# A worker that connects where existing agents do, and has the test say what the transcript says:
# it hands over the connection, which stays its own, because only its processes may have its name.
MOUTHPIECE = """
import os, socket
from urllib.parse import urlsplit
bus = urlsplit(os.environ["BUB_BUS_URL"])
while True:
    with socket.create_connection((bus.hostname, bus.port)) as ours:
        with socket.socket(socket.AF_UNIX) as test:
            test.connect(os.environ["TEST"])
            socket.send_fds(test, [b"."], [ours.fileno()])
            test.recv(1)  # until the agent has left; then it comes back
"""
OURS: Mapping[str, object] = {"workers.default.spawner": "subprocess", "agents.stop_seconds": 1.0}
TOKENS = {"bridge": "telegram-bridge", "agent": "bub-agents"}


class WorkersSocket(socket.socket):
    """The connection of a worker; the worker has it open, too, until it is told."""

    def __init__(self, worker: socket.socket, file: int) -> None:
        super().__init__(fileno=file)
        self._worker = worker

    def close(self) -> None:
        self._worker.close()
        super().close()


class Workers:
    """The connections of workers, as they come."""

    def __init__(self, case: Case) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="busd-test-")
        self.path = f"{self.folder.name}/test.sock"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(PATIENCE_SECONDS)
        self._waiting: list[socket.socket] = []  # workers that wait until their agent has left
        self._is_echo = case.settings.get("workers") == "echo"

    @property
    def settings(self) -> dict[str, object]:
        """The settings that say who answers: a worker of ours, or whoever the transcript says."""
        if self._is_echo:
            return dict(OURS)
        return {
            **OURS,
            "workers.default.agent": [sys.executable, "-I", "-c", MOUTHPIECE],
            "workers.default.environment.TEST": self.path,
        }

    def next_socket(self) -> socket.socket:
        """Wait for the connection of the next worker."""
        worker, _ = self._listener.accept()
        self._waiting.append(worker)
        _, [file], _, _ = socket.recv_fds(worker, 1, 1)
        found = WorkersSocket(worker, file)
        found.settimeout(PATIENCE_SECONDS)
        return found

    def close(self) -> None:
        for each in (self._listener, *self._waiting):
            each.close()
        self.folder.cleanup()


@pytest.fixture
def workers(case: Case) -> Iterator[Workers]:
    workers = Workers(case)
    yield workers
    workers.close()


def openers_of(case: Case) -> Iterator[str]:
    """Yield who connects, one after the other."""
    return iter([who for who, verb, _ in case.steps if verb == "connects"])


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
    case: Case, loop: Loop, opened: ExitStack, workers: Workers
) -> None:
    """In policy strict, which is the default."""
    with open_daemon(loop, {**workers.settings, "policy": "strict"}) as daemon:
        openers = openers_of(case)

        def open_peer(*, is_vouched_for: bool = True) -> Peer:
            if next(openers) == "agent":
                return open_web_socket(daemon, workers.next_socket(), opened)
            peer = connect(daemon, "ws")
            opened.callback(peer.close)
            return peer

        play(steps_of(case), open_peer, "", no_token)


@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.name)
def test_existing_peers_with_tokens_need_only_the_grants_of_the_guide(
    case: Case, loop: Loop, opened: ExitStack, workers: Workers
) -> None:
    """Where the kernel is not asked: a token in the address, as existing clients can have it."""
    with open_with_grants(loop, workers.settings) as daemon:
        tokens = {who: new_token(daemon, name) for who, name in TOKENS.items()}
        openers = openers_of(case)

        def open_peer(*, is_vouched_for: bool = True) -> Peer:
            who = next(openers)
            if who in tokens:
                sock = workers.next_socket() if who == "agent" else open_tcp(daemon.port)
                basic = base64.b64encode(f"bub:{tokens[who]}".encode()).decode()
                return open_web_socket(daemon, sock, opened, f"Authorization: Basic {basic}")
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


def open_web_socket(daemon: Daemon, sock: socket.socket, opened: ExitStack, *headers: str) -> Peer:
    """Shake hands over a connection; clients whose address has a password show it in a header."""
    peer = WebSocketPeer(sock)
    daemon.visitors.add(peer.sock)
    opened.callback(peer.close)
    status, _ = open_http(peer, *upgrade_lines(*headers))
    assert status == 101
    return peer
