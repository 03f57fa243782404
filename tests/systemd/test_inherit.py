"""Sockets that somebody opened for busd: it serves them, and leaves them as it found them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.daemons import PATIENCE_SECONDS, Loop
from tests.systemd.managers import ROOT
from tests.wire_peers import LinePeer, open_tcp, open_unix

_TAKE_TWICE = """
import os
from busd.ops.inherit import take_inherited_sockets
first, again = take_inherited_sockets(), take_inherited_sockets()
flags = [(os.get_inheritable(each.sock.fileno()), each.sock.getblocking()) for each in first]
left = [name for name in os.environ if name.startswith("LISTEN_")]
print([(each.name, each.address.scheme) for each in first], flags, again, left)
"""


@pytest.fixture
def unix(tmp_path: Path, opened: ExitStack) -> socket.socket:
    sock = opened.enter_context(socket.socket(socket.AF_UNIX))
    sock.bind(str(tmp_path / "given.sock"))
    sock.listen()
    return sock


@pytest.fixture
def tcp(opened: ExitStack) -> socket.socket:
    return opened.enter_context(socket.create_server(("127.0.0.1", 0)))


@contextmanager
def open_heir(
    words: list[str], sockets: list[socket.socket], folder: Path, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a Python program that inherits sockets as systemd hands them on."""
    count = len(sockets)

    def hand_on() -> None:
        spare = [os.dup(sock.fileno()) for sock in sockets]
        for index, descriptor in enumerate(spare):
            os.dup2(descriptor, 3 + index)

    given = {"LISTEN_FDS": str(count), "XDG_RUNTIME_DIR": str(folder), **variables}
    process = subprocess.Popen(
        # It is the new process's own number that has to be there.
        ["sh", "-c", 'LISTEN_PID=${LISTEN_PID:-$$} exec "$@"', "sh", sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **given},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=range(3, 3 + count),
        preexec_fn=hand_on,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def serve_words(folder: Path, *words: str) -> list[str]:
    return ["-m", "busd", "serve", "--json", "--state", str(folder / "state"), *words]


def first_line(process: subprocess.Popen[str]) -> list[str]:
    """Return the addresses that busd says it listens on."""
    assert process.stdout is not None
    listening: list[str] = json.loads(process.stdout.readline())["listening"]
    return listening


def test_inherited_sockets_are_served_instead_of_the_default_ones(
    unix: socket.socket, tcp: socket.socket, loop: Loop, tmp_path: Path, opened: ExitStack
) -> None:
    path, port = unix.getsockname(), tcp.getsockname()[1]
    words = serve_words(tmp_path, "--loop", loop, "--policy", "open")
    process = opened.enter_context(open_heir(words, [unix, tcp], tmp_path))

    assert first_line(process) == [f"unix:{path}", f"tcp://127.0.0.1:{port}"]
    for sock in (open_unix(path), open_tcp(port)):
        peer = LinePeer(sock)
        opened.callback(peer.close)
        assert peer.initialize("agent:a")


def test_an_inherited_socket_outlives_the_bus(
    unix: socket.socket, tmp_path: Path, opened: ExitStack
) -> None:
    path = unix.getsockname()
    with open_heir(serve_words(tmp_path), [unix], tmp_path) as process:
        first_line(process)
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0

    opened.callback(open_unix(path).close)  # it waits for the next bus
    next_words = serve_words(tmp_path)
    process = opened.enter_context(open_heir(next_words, [unix], tmp_path))
    assert first_line(process) == [f"unix:{path}"]


def test_what_the_settings_name_is_opened_beside_it(
    unix: socket.socket, tmp_path: Path, opened: ExitStack
) -> None:
    path = unix.getsockname()
    listen = ["--listen", f"unix:{path}", "--listen", f"unix:{tmp_path}/own.sock"]
    process = opened.enter_context(open_heir(serve_words(tmp_path, *listen), [unix], tmp_path))

    assert first_line(process) == [f"unix:{path}", f"unix:{tmp_path}/own.sock"]
    process.terminate()
    assert process.wait(PATIENCE_SECONDS) == 0
    assert Path(path).exists()
    assert not (tmp_path / "own.sock").exists()


def test_they_are_taken_once_and_kept_from_children(
    unix: socket.socket, tcp: socket.socket, tmp_path: Path
) -> None:
    variables = {"LISTEN_FDNAMES": "busd:tls"}
    with open_heir(["-c", _TAKE_TWICE], [unix, tcp], tmp_path, **variables) as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)

    names, flags = [("busd", "unix"), ("tls", "tls")], [(False, False), (False, False)]
    assert said == f"{names} {flags} [] []\n"


def test_sockets_for_another_process_are_left_alone(unix: socket.socket, tmp_path: Path) -> None:
    with open_heir(["-c", _TAKE_TWICE], [unix], tmp_path, LISTEN_PID="1") as process:
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert said == "[] [] [] []\n"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("datagram", "inherited socket 'busd' is not one of ListenStream="),
        ("connected", "inherited socket 'busd' is not one of ListenStream="),
        ("abstract", "inherited socket 'busd' has no path that clients could find"),
        ("public", "everybody on the network could read along"),
    ],
)
def test_a_socket_that_cannot_be_served_is_refused(
    kind: str, words: str, tmp_path: Path, opened: ExitStack
) -> None:
    sock = opened.enter_context(_strange_socket(kind, tmp_path))
    variables = {"LISTEN_FDNAMES": "busd"}
    with open_heir(serve_words(tmp_path), [sock], tmp_path, **variables) as process:
        _, said = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 78
    assert words in said
    assert "Traceback" not in said


def _strange_socket(kind: str, folder: Path) -> socket.socket:
    if kind == "datagram":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(str(folder / "datagram"))
        return sock
    if kind == "connected":
        one, other = socket.socketpair()
        other.close()
        return one
    if kind == "abstract":
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(f"\0busd-test-{os.getpid()}")
        sock.listen()
        return sock
    return socket.create_server(("0.0.0.0", 0))
