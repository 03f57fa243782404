"""The SDK and the command line find the owner's token by themselves, and show it to nobody else."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from busd import SyncClient
from busd.errors import BusdError, CallRefused
from busd.wire.bus_address import parse_bus_address
from busd.wire.places import find_token
from tests.bus.access.conftest import Guarded
from tests.cli.terminal import Terminal


@pytest.fixture
def home(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the user that owns the bus, also for the SDK in this process."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/busd").symlink_to(guarded.daemon.folder / "state")
    for name in ("STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "BUSD_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_the_owner_needs_to_say_no_token(
    scheme: str, guarded: Guarded, home: Path, opened: ExitStack
) -> None:
    for host in ("127.0.0.1", "localhost"):
        address = f"{scheme}://{host}:{guarded.daemon.port}"
        bus = opened.enter_context(SyncClient("agent:sdk", address=address))
        assert "owner" in [token["name"] for token in bus.call("bus.listTokens")["tokens"]]
    said = Terminal(home, address).busd("token", "ls")
    assert (said.code, said.err) == (0, "")
    assert "limited" in said.out


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_who_is_not_the_owner_is_told_what_is_missing(
    scheme: str, guarded: Guarded, tmp_path: Path
) -> None:
    address = f"{scheme}://127.0.0.1:{guarded.daemon.port}"
    said = Terminal(tmp_path, address).busd("status")
    assert said.code in (77, 75)  # 75: other tests have failed often just before
    if said.code == 77:
        assert "a token is needed here" in said.err


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_a_token_can_be_said_in_the_address_in_a_file_or_in_the_code(
    scheme: str,
    guarded: Guarded,
    home: Path,
    opened: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = f"127.0.0.1:{guarded.daemon.port}"
    token = guarded.tokens["limited"]
    in_address = SyncClient("guest:a", address=f"{scheme}://:{token}@{place}")
    in_code = SyncClient("guest:b", address=f"{scheme}://{place}", token=token)
    for client in (in_address, in_code):
        with pytest.raises(CallRefused, match="is no admin here"):
            opened.enter_context(client).call("bus.listTokens")
    file = home / "limited.token"
    file.write_text(f"{token}\n")
    monkeypatch.setenv("BUSD_TOKEN_FILE", str(file))
    in_file = opened.enter_context(SyncClient("guest:c", address=f"{scheme}://{place}"))
    with pytest.raises(CallRefused):
        in_file.call("bus.listTokens")


@pytest.mark.parametrize(
    ("address", "is_shown"),
    [
        ("tcp://127.0.0.1:1", True),
        ("ws://localhost:1", True),
        ("tcp://[::1]:1", True),
        ("tls://localhost:1", True),
        ("unix:/run/busd/bus.sock", False),
        ("tcp://192.0.2.1:1", False),
        ("ws://example.org:1", False),
        ("tcp://0.0.0.0:1", False),
        ("ws://localhost.example.org:1", False),
        # Encrypted, but another host's bus: what is ours is none of its business.
        ("wss://example.org:1", False),
    ],
)
def test_the_owners_token_is_shown_only_to_the_bus_of_this_host(
    address: str, is_shown: bool, home: Path
) -> None:
    own = (home / "state/busd/token").read_text().strip()
    assert find_token(parse_bus_address(address)) == (own if is_shown else "")


def test_a_token_in_a_named_file_is_shown_to_other_hosts_but_not_in_the_clear(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "named").write_text("named-token\n")
    monkeypatch.setenv("BUSD_TOKEN_FILE", str(home / "named"))
    assert find_token(parse_bus_address("wss://example.org:1")) == "named-token"
    assert find_token(parse_bus_address("tls://192.0.2.1:1")) == "named-token"
    assert find_token(parse_bus_address("ws://example.org:1")) == ""
    assert find_token(parse_bus_address("ws://:said@example.org:1")) == "said"
    (home / "named").write_bytes(b"\xff\xfe")
    assert find_token(parse_bus_address("wss://example.org:1")) == ""


def test_the_sdk_shows_no_token_to_a_plain_address_of_the_network(home: Path) -> None:
    heard: list[bytes] = []
    # 0.0.0.0 is this host to the kernel, and not known as loopback to anybody else.
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        listener = threading.Thread(target=_hear_one_line, args=(server, heard))
        listener.start()
        client = SyncClient("agent:sdk", address=f"tcp://0.0.0.0:{port}", timeout_seconds=5)
        with pytest.raises(BusdError):
            client.__enter__()
        listener.join()
    assert "auth" not in json.loads(heard[0])["params"]


def _hear_one_line(server: socket.socket, heard: list[bytes]) -> None:
    sock, _ = server.accept()
    with sock, sock.makefile("rb") as lines:
        heard.append(lines.readline())
