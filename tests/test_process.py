"""The daemon as a process: how it starts, refuses to start, and stops; and how peers die."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon, run_busd, serve_args
from tests.wire_peers import Closed, Json, Peer, Transport, join_by, open_unix

MISCONFIGURED = 78


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="busd-test-") as name:
        yield Path(name)


# Stopping


class Echo(Thread):
    """A peer that answers every message until the bus ends the connection."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.got: list[str] = []
        self._peer = peer

    def run(self) -> None:
        try:
            while True:
                message = self._peer.next_message()
                self.got.append(message["params"]["messageId"])
                self._peer.answer(message, {"message": "done"})
        except (Closed, BrokenPipeError):
            self._peer.close()


def send_until_closed(peer: Peer, to: str, daemon: Daemon) -> tuple[list[int], list[Json]]:
    """Send with 64 in flight and stop the daemon midway; give the ids sent and the answers."""
    sent: list[int] = []
    answers: list[Json] = []
    may_send = True
    try:
        while True:
            while may_send and len(sent) - len(answers) < 64:
                try:
                    sent.append(peer.send_message(to, messageId=f"m{len(sent)}"))
                except OSError:
                    may_send = False
            answers.append(peer.next_json())
            if len(answers) == 1_000:
                daemon.signal(signal.SIGTERM)
    except Closed:
        return sent, answers


@pytest.mark.parametrize("transport", ["unix", "ws"])
def test_sigterm_under_load_answers_every_accepted_request_before_the_end(
    loop: Loop, transport: Transport
) -> None:
    with open_daemon(loop) as daemon, ExitStack() as opened:
        echo = Echo(join_by(daemon, transport, "agent:bob", opened))
        alice = join_by(daemon, transport, "agent:alice", opened)
        echo.start()
        sent, answers = send_until_closed(alice, "agent:bob", daemon)
        alice.close()
        echo.join(PATIENCE_SECONDS)
        assert daemon.wait() == 0

    # Each request is answered once, or was never read: those are the last ones that were sent.
    ids = [answer["id"] for answer in answers]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(sent[: len(ids)])
    # What was delivered was acked, what was refused was not delivered, and nothing else happened.
    acked = [answer for answer in answers if "result" in answer]
    refused = [answer for answer in answers if "error" in answer]
    assert {answer["result"]["messageId"] for answer in acked} == set(echo.got)
    assert len(acked) == len(echo.got)
    assert all(answer["result"]["acks"][0]["message"] == "done" for answer in acked)
    for answer in refused:
        assert answer["error"] == {
            "code": -32004,
            "message": "the bus is stopping",
            "data": {"rule": "busy", "retrySeconds": 1},
        }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopping_bus_waits_for_the_acks_it_owes(loop: Loop, number: signal.Signals) -> None:
    with open_daemon(loop) as daemon, ExitStack() as opened:
        alice = join_by(daemon, "unix", "agent:alice", opened)
        bob = join_by(daemon, "tcp", "agent:bob", opened)
        request_id = alice.send_message("agent:bob")
        message = bob.next_message()
        daemon.signal(number)
        until_stopping(alice)
        bob.answer(message, {"message": "just in time"})
        assert alice.answer_to(request_id)["result"]["acks"][0]["message"] == "just in time"
        alice.expect_close()
        bob.expect_close()
        alice.close()
        bob.close()
        assert daemon.wait() == 0


def test_a_stopping_bus_does_not_wait_for_ever(loop: Loop) -> None:
    settings = {"drain_seconds": 0.3, "wire.linger_seconds": 0.3}
    with open_daemon(loop, settings) as daemon, ExitStack() as opened:
        alice = join_by(daemon, "unix", "agent:alice", opened)
        silent = join_by(daemon, "unix", "agent:silent", opened)
        request_id = alice.send_message("agent:silent")
        silent.next_message()
        daemon.signal(signal.SIGTERM)
        (ack,) = alice.answer_to(request_id)["result"]["acks"]
        assert (ack["success"], ack["message"]) == (False, "the bus is stopping")
        alice.expect_close()
        assert daemon.wait() == 0


def test_a_second_sigint_hurries(loop: Loop) -> None:
    patient = {"drain_seconds": 600.0, "wire.linger_seconds": 600.0}
    with open_daemon(loop, patient) as daemon, ExitStack() as opened:
        alice = join_by(daemon, "unix", "agent:alice", opened)
        silent = join_by(daemon, "unix", "agent:silent", opened)
        request_id = alice.send_message("agent:silent")
        silent.next_message()
        daemon.signal(signal.SIGINT)
        until_stopping(alice)
        daemon.signal(signal.SIGINT)
        (ack,) = alice.answer_to(request_id)["result"]["acks"]
        assert (ack["success"], ack["message"]) == (False, "the bus is stopping")
        alice.expect_close()
        assert daemon.wait() == 0


def test_a_stopping_bus_says_goodbye_to_a_web_socket(loop: Loop) -> None:
    with open_daemon(loop) as daemon, ExitStack() as opened:
        alice = join_by(daemon, "ws", "agent:alice", opened)
        daemon.signal(signal.SIGTERM)
        assert alice.expect_close() == 1001


def test_a_stopped_bus_leaves_no_socket_file(loop: Loop) -> None:
    with open_daemon(loop) as daemon:
        assert daemon.stop() == 0
        assert not Path(daemon.path).exists()


def test_a_connection_that_comes_just_when_the_bus_stops_does_no_harm(loop: Loop) -> None:
    with open_daemon(loop) as daemon, ExitStack() as opened:
        alice = join_by(daemon, "ws", "agent:alice", opened)
        late = opened.enter_context(open_unix(daemon.path))
        daemon.signal(signal.SIGTERM)
        assert alice.expect_close() == 1001
        assert late.recv(1) == b""


def until_stopping(peer: Peer) -> None:
    """Send messages until the bus says that it takes no more."""
    for _ in range(100_000):
        answer = peer.answer_to(peer.send_message("agent:nobody"))
        if answer.get("error", {}).get("code") == -32004:
            return
    raise AssertionError("the bus does not stop")


# Dying

_PEER = """
import sys
from tests.wire_peers import LinePeer, open_unix
peer = LinePeer(open_unix(sys.argv[1]))
peer.initialize("agent:mortal")
print("ready", flush=True)
peer.next_message()
print("got it", flush=True)
sys.stdin.read()
"""


def test_kill_9_of_a_peer_fails_its_deliveries_at_once(loop: Loop) -> None:
    with open_daemon(loop) as daemon, ExitStack() as opened:
        alice = join_by(daemon, "unix", "agent:alice", opened)
        mortal = opened.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", _PEER, daemon.path],
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        assert mortal.stdout is not None
        assert mortal.stdout.readline() == b"ready\n"
        request_id = alice.send_message("agent:mortal", messageId="m")
        assert mortal.stdout.readline() == b"got it\n"
        mortal.kill()
        # The ack would come after 60 s if the bus waited for it; the socket gives up after 30.
        result = alice.answer_to(request_id)["result"]
        assert result["acks"] == [
            {
                "success": False,
                "message": "peer left before it answered",
                "outcome": "lost",
                "payload": {},
                "clientId": "agent:mortal",
            }
        ]
        names = [each["clientId"] for each in alice.call("getStatus")["connections"]]
        assert "agent:mortal" not in names


def test_a_bus_that_was_killed_starts_again_in_the_same_place(loop: Loop) -> None:
    with open_daemon(loop) as daemon:
        daemon.signal(signal.SIGKILL)
        daemon.process.wait(PATIENCE_SECONDS)
        assert Path(daemon.path).is_socket()  # the kernel removes nothing
        daemon.start_again(loop)
        with ExitStack() as opened:
            join_by(daemon, "unix", "agent:alice", opened).expect_nothing()


# Starting


def test_a_stale_socket_file_is_replaced(loop: Loop, folder: Path) -> None:
    path = folder / "bus.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
        old.listen()
    with open_daemon(loop, folder=folder) as daemon, ExitStack() as opened:
        assert daemon.path == str(path)
        join_by(daemon, "unix", "agent:alice", opened).expect_nothing()


def test_a_live_socket_file_is_left_alone(folder: Path) -> None:
    with open_daemon("uvloop") as daemon, ExitStack() as opened:
        address = f"unix:{daemon.path}"
        args = ["serve", "--listen", address, "--state", str(folder / "state")]
        code, said = run_busd(args, folder)
        assert code == MISCONFIGURED
        assert said == f"busd: {address}: another bus is listening here; stop it first\n"
        join_by(daemon, "unix", "agent:alice", opened).expect_nothing()


def test_a_file_that_is_no_socket_is_left_alone(folder: Path) -> None:
    precious = folder / "bus.sock"
    precious.write_text("precious")
    code, said = run_busd(serve_args(folder), folder)
    assert code == MISCONFIGURED
    assert said == f"busd: unix:{precious}: there is a file here that is not a socket\n"
    assert precious.read_text() == "precious"


def test_a_port_in_use_is_refused(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        args = ["serve", "--listen", address, "--state", str(folder / "state")]
        code, said = run_busd(args, folder)
    assert code == MISCONFIGURED
    assert said == f"busd: cannot listen on {address}: Address already in use\n"


def test_what_was_opened_before_a_refusal_is_closed_again(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        args = [*serve_args(folder), "--listen", f"tcp://127.0.0.1:{taken.getsockname()[1]}"]
        code, _ = run_busd(args, folder)
    assert code == MISCONFIGURED
    assert not (folder / "bus.sock").exists()


@pytest.mark.parametrize(
    "address", ["tcp://0.0.0.0:0", "tcp://192.0.2.1:7892", "tcp://[::]:0", "tcp://bus.example:1"]
)
def test_a_listener_that_others_could_reach_is_refused(folder: Path, address: str) -> None:
    args = ["serve", "--listen", address, "--state", str(folder / "state")]
    code, said = run_busd(args, folder)
    assert code == MISCONFIGURED
    assert said.startswith(f"busd: {address}: everybody on the network could read along;")


@pytest.mark.parametrize("address", ["nonsense", "udp://127.0.0.1:1", "unix:", "tcp://:1"])
def test_an_address_that_is_none_is_refused(folder: Path, address: str) -> None:
    args = ["serve", "--listen", address, "--state", str(folder / "state")]
    code, said = run_busd(args, folder)
    assert code == MISCONFIGURED
    assert said.startswith(f"busd: command line: {address!r}")
    assert said.count("\n") == 1


def test_a_second_bus_on_the_same_state_is_refused(folder: Path) -> None:
    with open_daemon("uvloop") as daemon:
        state = daemon.folder / "state"
        args = ["serve", "--listen", f"unix:{folder / 'bus.sock'}", "--state", str(state)]
        code, said = run_busd(args, folder)
    assert code == MISCONFIGURED
    expected = f"another busd uses the state directory {state}; stop it or choose --state"
    assert said == f"busd: {expected}\n"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("polcy = 'open'", "unknown setting 'polcy'; did you mean 'policy'?"),
        ("wire.max_frame_byte = 1", "did you mean 'wire.max_frame_bytes'?"),
        ("delivery.ack_seconds = 'long'", "delivery.ack_seconds must be a number, not 'long'"),
        ("delivery.ack_seconds = 0", "delivery.ack_seconds must be more than 0, not 0"),
        ("policy = 'lax'", "policy must be open or strict, not 'lax'"),
        ("wire = [", ""),
    ],
)
def test_a_bad_setting_is_refused_in_one_line(folder: Path, line: str, complaint: str) -> None:
    config = folder / "bad.toml"
    config.write_text(line)
    code, said = run_busd([*serve_args(folder), "--config", str(config)], folder)
    assert code == MISCONFIGURED
    assert said.startswith("busd: ")
    assert complaint in said
    assert said.count("\n") == 1


def test_a_config_file_that_is_not_there_is_refused(folder: Path) -> None:
    missing = folder / "missing.toml"
    code, said = run_busd([*serve_args(folder), "--config", str(missing)], folder)
    assert (code, said) == (
        MISCONFIGURED,
        f"busd: cannot read {missing}: No such file or directory\n",
    )


def test_only_the_owner_may_come_near(loop: Loop) -> None:
    with open_daemon(loop) as daemon:
        assert stat.S_IMODE(Path(daemon.path).stat().st_mode) == 0o600
        assert stat.S_IMODE((daemon.folder / "state").stat().st_mode) == 0o700
        assert stat.S_IMODE((daemon.folder / "state" / "busd.lock").stat().st_mode) == 0o600
