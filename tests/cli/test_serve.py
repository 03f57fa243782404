"""`busd serve`: what it says when it is ready, how it stops, and why it does not start."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from busd import CallRefused, SyncClient, __version__
from tests.cli.terminal import BUSD, Running, Said, Terminal
from tests.daemons import PATIENCE_SECONDS


def start_serving(terminal: Terminal, *args: str) -> tuple[Running, list[str]]:
    """Start a bus; give it and the lines it says when it is ready."""
    running = terminal.start("serve", *args)
    lines: list[str] = []
    while not lines or not lines[-1].startswith(("Ctrl-C", "{")):
        line = running.stdout.readline()
        assert line, running.stderr.read()
        lines.append(line.rstrip("\n"))
    return running, lines


def type_in(terminal: Terminal, line: str) -> Said:
    """Run a line as a shell does."""
    return terminal.run(["bash", "-c", line])


@pytest.mark.parametrize("folder", ["plain", "with a space"])
def test_it_says_where_it_listens_and_what_to_type_and_that_works(
    tmp_path: Path, lonely: Terminal, folder: str
) -> None:
    address = f"unix:{tmp_path / folder / 'bus.sock'}"
    running, lines = start_serving(lonely, "-l", address, "-l", "tcp://127.0.0.1:0")
    with running:
        listening, unix, tcp, hint, listen, send, chat, status, stop = lines
        assert (listening, unix) == ("busd is listening on", f"  {address}")
        assert tcp.startswith("  tcp://127.0.0.1:")
        assert not tcp.startswith("  tcp://127.0.0.1:0 ")
        assert tcp.endswith("   (lines of JSON and WebSocket)")
        assert hint == "Try, in other terminals:"
        assert stop == "Ctrl-C stops it."
        with lonely.start_any(["bash", "-c", f"exec {listen}"]) as bob:
            assert bob.stderr.readline() == "listening as agent:bob; Ctrl-C stops\n"
            said = type_in(lonely, send)
            assert (said.code, said.err) == (0, "")
            assert said.out.startswith("agent:bob: ok ")
            assert bob.stdout.readline().endswith(" → agent:bob  hello\n")
            said = type_in(lonely, f"echo hello | {chat}")
            assert said == (0, "hello\n", "")  # the built-in echo
            said = type_in(lonely, status)
            assert said.code == 0
            assert "agent:bob" in said.out
        assert running.interrupt().code == 0


def test_commands_to_type_need_no_address_for_the_users_own_socket(lonely: Terminal) -> None:
    running, lines = start_serving(lonely, "-l", f"unix:{lonely.folder}/busd/bus.sock")
    with running:
        assert not any("--address" in line for line in lines)
        assert type_in(lonely, lines[-2]).code == 0


def test_json_says_where_it_listens_in_one_line(tmp_path: Path, lonely: Terminal) -> None:
    address = f"unix:{tmp_path / 'bus.sock'}"
    running, [line] = start_serving(lonely, "-l", address, "-l", "tcp://localhost:0", "--json")
    with running:
        said = json.loads(line)
        assert said["version"] == __version__
        unix, tcp = said["listening"]
        assert unix == address
        assert lonely.busd("status", "-a", tcp).code == 0


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_a_bus_whose_words_nobody_reads_runs_all_the_same(
    tmp_path: Path, lonely: Terminal, how: list[str]
) -> None:
    address = f"unix:{tmp_path / 'bus.sock'}"
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [*BUSD, "serve", "-l", address, *how],
            stdout=full,
            stderr=subprocess.PIPE,
            env=lonely.environment,
            text=True,
        )
    try:
        assert process.stderr is not None
        events = map(json.loads, iter(process.stderr.readline, ""))
        unheard = next(event for event in events if event["event"] == "daemon.unheard")
        assert unheard["reason"] == "No space left on device"
        assert lonely.busd("status", "-a", address).code == 0
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in said


@pytest.mark.parametrize("loop", ["uvloop", "asyncio", "trio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(
    tmp_path: Path, lonely: Terminal, loop: str, number: signal.Signals
) -> None:
    path = tmp_path / "bus.sock"
    running, _ = start_serving(lonely, "-l", f"unix:{path}", "--loop", loop)
    with running, SyncClient("ann", address=f"unix:{path}") as ann:
        assert ann.ping()
        running.process.send_signal(number)
        said = running.end()
    assert (said.code, said.out) == (0, "")
    assert "Traceback" not in said.err
    assert not path.exists()


def test_the_log_is_one_json_object_a_line(tmp_path: Path, lonely: Terminal) -> None:
    address = f"unix:{tmp_path / 'bus.sock'}"
    running, _ = start_serving(lonely, "-l", address)
    with running:
        with SyncClient("ann", address=address) as ann:
            ann.ping()
        said = running.interrupt()
    events = [json.loads(line) for line in said.err.splitlines()]
    assert {"peer.joined", "peer.left", "daemon.stopping"} <= {each["event"] for each in events}
    assert all(each.keys() >= {"event", "level", "timestamp"} for each in events)
    joined = [each for each in events if each["event"] == "peer.joined"]
    assert ("info", "ann") in [(each["level"], each["peer"]) for each in joined]


def test_the_log_level_hides_what_is_below(tmp_path: Path, lonely: Terminal) -> None:
    address = f"unix:{tmp_path / 'bus.sock'}"
    running, _ = start_serving(lonely, "-l", address, "--log-level", "warning")
    with running:
        with SyncClient("ann", address=address) as ann:
            ann.ping()
        assert running.interrupt().err == ""


@pytest.mark.parametrize("variable", ["IGNORED", "NO_COLOR"])
def test_on_a_terminal_the_log_is_for_people(
    tmp_path: Path, lonely: Terminal, variable: str
) -> None:
    ours, its = pty.openpty()
    running = subprocess.Popen(
        [*BUSD, "serve", "--json", "-l", f"unix:{tmp_path / 'bus.sock'}"],
        env=lonely.environment | {variable: "1", "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=its,
    )
    os.close(its)
    with running, os.fdopen(ours, "rb", buffering=0) as screen:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_SECONDS) == 0
        shown = screen.read(65_536).decode()
    assert "daemon.stopping" in shown
    assert "{" not in shown
    assert ("\x1b[" in shown) == (variable != "NO_COLOR")


def test_flags_win_over_the_file(tmp_path: Path, lonely: Terminal) -> None:
    config = tmp_path / "busd.toml"
    address = f"unix:{tmp_path / 'bus.sock'}"
    config.write_text(
        f'listen = ["{address}", "tcp://127.0.0.1:0"]\npolicy = "strict"\n'
        "identify_loopback = false\n"
    )
    running, lines = start_serving(lonely, "--config", str(config), "--json")
    tcp = json.loads(lines[0])["listening"][1]
    with running:
        with pytest.raises(CallRefused), SyncClient("ann", address=tcp):
            pass
        running.interrupt()
    running, lines = start_serving(lonely, "--config", str(config), "--policy", "open", "--json")
    tcp = json.loads(lines[0])["listening"][1]
    with running, SyncClient("ann", address=tcp) as ann:
        assert ann.post("nobody", {}, sender="bob").accepted


# Why it does not start


def refusal(terminal: Terminal, *args: str) -> str:
    """Return the one line in which it says that it cannot run so."""
    said = terminal.busd("serve", *args)
    assert (said.code, said.out) == (78, ""), said
    assert said.err.startswith("busd: ")
    assert said.err.count("\n") == 1
    return said.err.removeprefix("busd: ").rstrip()


def test_a_mistake_in_the_settings_is_one_line(tmp_path: Path, lonely: Terminal) -> None:
    config = tmp_path / "busd.toml"
    config.write_text('polcy = "open"')
    said = refusal(lonely, "--config", str(config))
    assert said == f"{config}: unknown setting 'polcy'; did you mean 'policy'?"
    config.write_text("listen = []")
    said = refusal(lonely, "--config", str(config))
    assert said == f"{config}: listen must name at least one address"
    assert refusal(lonely, "--config", "none.toml").startswith("cannot read none.toml: No such")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://localhost", "is not an address of a bus"),
        ("tcp://0.0.0.0:0", "everybody on the network could read along; use tls:// there"),
        ("tcp://127.0.0.1:99999", "out of range"),
        ("unix:/proc/none/bus.sock", "cannot listen on"),
    ],
)
def test_an_address_it_cannot_listen_on_is_one_line(
    lonely: Terminal, address: str, reason: str
) -> None:
    assert reason in refusal(lonely, "-l", address)


def test_a_second_bus_in_the_same_place_is_refused(tmp_path: Path, lonely: Terminal) -> None:
    address = f"unix:{tmp_path / 'bus.sock'}"
    running, _ = start_serving(lonely, "-l", address)
    with running:
        said = refusal(lonely, "-l", f"unix:{tmp_path / 'other.sock'}")
        assert said.startswith("another busd uses the state directory")
        said = refusal(lonely, "-l", address, "--state", str(tmp_path / "other"))
        assert said == f"{address}: another bus is listening here; stop it first"
        assert lonely.busd("status", "-a", address).code == 0


def test_a_mistake_in_typing_is_explained(lonely: Terminal) -> None:
    for args in (["--loop", "twisted"], ["--policy", "lax"], ["extra"], ["--log-level", "loud"]):
        said = lonely.busd("serve", *args)
        assert (said.code, said.out) == (2, "")
        assert "Usage: busd serve" in said.err
