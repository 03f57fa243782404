"""Tokens are said once, to who asked for them, and never again: not in logs, errors or reprs."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from busd import Client
from busd.bus.authenticator import Authenticator, TokenRecord, hash_token
from busd.bus.methods import Auth, InitializeParams
from busd.errors import ConfigError
from busd.ops.admin import NewToken
from busd.wire.bus_address import parse_bus_address
from busd.wire.credentials import Credentials
from tests.bus.access.guarded import (
    Way,
    as_owner,
    join_with,
    new_token,
    owner_token,
    show_token,
)
from tests.daemons import Daemon, serve_args, start_busd
from tests.wire_peers import (
    Transport,
    WebSocketPeer,
    connect,
    open_http,
    open_tcp,
    random_key,
    upgrade_lines,
)

_WRONG = "busd_wrongWRONGwrongWRONGwrongWRONGwrongWRONGwrong"
_WAYS: list[tuple[Transport, Way]] = [("tcp", "auth"), ("ws", "auth"), ("ws", "bearer")]


@contextmanager
def open_talkative() -> Iterator[Daemon]:
    """Run a strict daemon that logs all it can."""
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    args = serve_args(folder, "uvloop", {"policy": "strict"})
    args[args.index("--log-level") + 1] = "debug"
    try:
        daemon = Daemon(start_busd(args, folder), folder)
        try:
            yield daemon
        finally:
            daemon.stop()
            daemon.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_tokens_are_neither_logged_nor_said_in_an_answer(opened: ExitStack) -> None:
    with open_talkative() as daemon:
        secrets = [new_token(daemon, "bridge"), owner_token(daemon), _WRONG]
        said: list[bytes] = []
        for token in secrets:
            for transport, way in [*_WAYS, ("ws", "basic")]:
                peer, more = show_token(daemon, transport, way, token, opened)
                peer.send_json(_request({"clientId": "tg:1", **more}))
                said.append(peer.read_frame())
            said += _mistakes(daemon, token, opened)
            said.append(_page(daemon, token))
        join_with(daemon, "tcp", secrets[0], "tg:2", opened).call("getStatus")
        said.append(str(as_owner(daemon, "bus.listTokens")).encode())
        said.append(str(as_owner(daemon, "getStatus")).encode())
        as_owner(daemon, "bus.revokeToken", {"name": "bridge"})
        daemon.signal(signal.SIGHUP)
        while "settings.reloaded" not in daemon.log():  # nothing else tells
            as_owner(daemon, "ping")
        assert daemon.stop() == 0
        log = daemon.log()
        assert "peer.joined" in log
        assert "peer.refused" in log
        files = [file.read_bytes() for file in (daemon.folder / "state").glob("journal.db*")]
        for token in secrets:
            assert token not in log
            assert hash_token(token) not in log
            assert not [answer for answer in said if token.encode() in answer]
            assert not [file for file in files if token.encode() in file]


def _mistakes(daemon: Daemon, token: str, opened: ExitStack) -> list[bytes]:
    """Return what the bus says to requests that have the token in the wrong place."""
    said: list[bytes] = []
    for params in (
        {"clientId": "tg:1", "auth": token},
        {"clientId": "tg:1", "auth": [token]},
        {"clientId": 5, "auth": {"token": token}},
        {"clientId": "not an address", "auth": {"token": token}},
        {"clientId": "tg:1", "clientInfo": 5, "auth": {"token": token}},
    ):
        peer = connect(daemon, "tcp")
        opened.callback(peer.close)
        peer.send_json(_request(params))
        said.append(peer.read_frame())
        peer.send_bytes(f'{{"auth": {{"token": "{token}"'.encode())
        said.append(peer.read_frame())
    return said


def _page(daemon: Daemon, token: str) -> bytes:
    """Return the page that somebody with a token and a wrong path gets."""
    peer = WebSocketPeer(open_tcp(daemon.port))
    lines = upgrade_lines(f"Authorization: Bearer {token}", f"Sec-WebSocket-Key: {random_key()}")
    _, text = open_http(peer, "GET /nothing HTTP/1.1", *lines[1:])
    peer.sock.close()
    return text.encode()


def _request(params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def test_nothing_that_holds_a_token_shows_it() -> None:
    address = parse_bus_address(f"ws://me:{_WRONG}@127.0.0.1:1/")
    assert address.token == _WRONG
    params = InitializeParams("tg:1", auth=Auth(_WRONG))
    authenticator = Authenticator("strict", tokens=[TokenRecord("x", hash_token(_WRONG), "")])
    identity, rights = authenticator.admit(Credentials(), _WRONG)
    things = [
        address,
        Auth(_WRONG),
        params,
        Credentials(token=_WRONG),
        NewToken("x", _WRONG),
        Client("tg:1", address=f"tcp://:{_WRONG}@127.0.0.1:1", token=_WRONG),
        authenticator,
        authenticator.tokens,
        identity,
        rights.grants,
    ]
    for thing in things:
        assert _WRONG not in f"{thing} {thing!r}"
    assert _WRONG in msgspec.json.encode(NewToken("x", _WRONG)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "ws://me:{}@",
        "ws://me:{}@host:port",
        "ws://me:{}@host/?x",
        "tcp://me:{}@host/path",
        "http://me:{}@host/",
        "me:{}@host",
    ],
)
def test_a_malformed_address_is_named_without_its_token(text: str) -> None:
    with pytest.raises(ConfigError) as problem:
        parse_bus_address(text.format(_WRONG))
    assert _WRONG not in str(problem.value)
    assert "@" in str(problem.value)
