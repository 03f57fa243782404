"""Who connects over loopback TCP or WebSocket is known to the kernel, and so to the bus."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from busd.wire.loopback import loopback_owner
from tests.bus.access.guarded import (
    GUEST,
    OTHER_GUEST,
    as_owner,
    connect_as,
    error_of,
    is_closed,
    new_token,
    open_guarded,
    open_with_header,
)
from tests.cli.terminal import Terminal
from tests.daemons import Daemon, Loop
from tests.wire_peers import (
    Peer,
    Transport,
    WebSocketPeer,
    connect,
    join_by,
    open_http,
    open_tcp,
    upgrade_lines,
)

GRANTS = [{"name": "guests", "uid": GUEST, "client_ids": ["guest:*"], "send_to": ["desk:*"]}]
LINES: list[Transport] = ["tcp", "ws"]


@pytest.fixture(scope="module")
def daemon(loop: Loop) -> Iterator[Daemon]:
    """A strict bus that asks the kernel, as it does by default."""
    with open_guarded(loop, GRANTS, {"identify_loopback": True}) as daemon:
        yield daemon


@pytest.mark.parametrize("transport", LINES)
def test_the_owner_needs_no_token_over_loopback(
    daemon: Daemon, transport: Transport, opened: ExitStack
) -> None:
    peer = join_by(daemon, transport, "agent:mine", opened)
    [me] = [each for each in _status(daemon) if each["clientId"] == "agent:mine"]
    assert me["knownBy"] == f"uid {os.geteuid()} (loopback TCP)"
    assert peer.call("bus.listTokens")


@pytest.mark.parametrize("transport", ["unix", *LINES])
def test_a_grant_by_uid_holds_on_every_transport(
    daemon: Daemon, transport: Transport, opened: ExitStack
) -> None:
    guest = connect_as(GUEST, daemon, opened, transport)
    assert error_of(guest, "initialize", {"clientId": "agent:x"}) == (
        -32602,
        "grant.guests.client_ids",
    )
    guest.initialize("guest:1")
    assert error_of(guest, "sendMessage", {"to": "agent:x", "payload": {}}) == (
        -32602,
        "grant.guests.send_to",
    )
    assert "result" in guest.answer_to(guest.send_message("desk:1"))


@pytest.mark.parametrize("transport", LINES)
def test_a_user_without_a_grant_is_not_let_in_over_loopback(
    daemon: Daemon, transport: Transport, opened: ExitStack
) -> None:
    stranger = connect_as(OTHER_GUEST, daemon, opened, transport)
    answer = stranger.answer_to(stranger.request("initialize", {"clientId": "guest:1"}))
    assert answer["error"]["code"] == -32005
    assert answer["error"]["message"] == f"there is no grant for uid {OTHER_GUEST}"


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded: for=192.0.2.1",
        "Via: 1.1 proxy",
        "X-Forwarded-For: 192.0.2.1",
        "x-forwarded-proto: https",
        "X-Real-IP: 192.0.2.1",
        "CF-Connecting-IP: 192.0.2.1",
    ],
)
def test_who_comes_through_a_proxy_needs_a_token(
    daemon: Daemon, header: str, opened: ExitStack
) -> None:
    peer = open_with_header(daemon, header, opened)
    assert error_of(peer, "initialize", {"clientId": "x"}) == (-32005, "authentication")
    token = new_token(daemon, f"behind-{header.partition(':')[0].lower()}")
    peer.initialize("x", auth={"token": token})


def test_a_page_of_another_site_is_not_let_in_though_its_browser_is_ours(daemon: Daemon) -> None:
    with open_tcp(daemon.port) as sock:
        browser = WebSocketPeer(sock)
        status, _ = open_http(browser, *upgrade_lines("Origin: http://evil.example"))
        assert status == 403


@pytest.mark.parametrize("transport", LINES)
def test_a_token_that_is_shown_decides_alone(
    daemon: Daemon, transport: Transport, opened: ExitStack
) -> None:
    token = new_token(daemon, f"few-{transport}")
    peer = connect(daemon, transport)
    opened.callback(peer.close)
    wrong = {"clientId": "x", "auth": {"token": "busd_wrong"}}
    assert error_of(peer, "initialize", wrong) == (-32005, "authentication")
    peer.initialize("x", auth={"token": token})
    assert error_of(peer, "bus.listTokens") == (-32602, "grant.admin")


def test_a_setting_turns_it_off_for_those_who_are_here_too(loop: Loop, opened: ExitStack) -> None:
    with open_guarded(loop, GRANTS) as daemon:
        peer = connect(daemon, "tcp")
        opened.callback(peer.close)
        assert error_of(peer, "initialize", {"clientId": "x"}) == (-32005, "authentication")
        _reload(daemon, "identify_loopback = true")
        peer = _until_joined(daemon, opened)
        local = join_by(daemon, "unix", "agent:unix", opened)
        _reload(daemon, "identify_loopback = false")
        while not is_closed(peer):
            pass
        assert local.call("ping")


def test_explain_and_status_tell_what_a_peer_is_known_by(
    daemon: Daemon, tmp_path: Path, opened: ExitStack
) -> None:
    join_by(daemon, "ws", "agent:seen", opened)
    terminal = Terminal(tmp_path, f"unix:{daemon.path}")
    shown = terminal.busd("status").out
    [line] = [line for line in shown.splitlines() if line.startswith("agent:seen ")]
    assert f"uid {os.geteuid()} (loopback TCP)" in line
    said = terminal.busd("explain", "--from", "a", "--to", "b").out
    assert f"you are known by uid {os.geteuid()} (Unix socket)" in said


# What the kernel is asked


def owner_of(sock: socket.socket) -> int | None:
    owner = loopback_owner(sock)
    return None if owner is None else owner.uid


def test_the_inode_is_that_of_the_other_end() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
        listener.accept()[0] as theirs,
    ):
        owner = loopback_owner(theirs)
        assert owner is not None
        assert owner.inode == os.fstat(ours.fileno()).st_ino


def test_only_an_established_connection_of_an_open_socket_counts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        with theirs:
            assert owner_of(theirs) == os.geteuid()
            ours.shutdown(socket.SHUT_WR)
            assert loopback_owner(theirs) is None
            ours.close()
            assert loopback_owner(theirs) is None


def test_ipv6_and_mapped_addresses_are_known_too() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        for host in ("::1", "127.0.0.1"):
            with socket.create_connection((host, port)):
                theirs, _ = listener.accept()
                with theirs:
                    assert owner_of(theirs) == os.geteuid()


def test_other_sockets_are_not_asked_about() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert loopback_owner(one) is None


def _status(daemon: Daemon) -> list[dict[str, str]]:
    found: list[dict[str, str]] = as_owner(daemon, "getStatus")["connections"]
    return found


def _reload(daemon: Daemon, line: str) -> None:
    (daemon.folder / "conf.d/zz.toml").write_text(line + "\n")
    daemon.signal(signal.SIGHUP)


def _until_joined(daemon: Daemon, opened: ExitStack) -> Peer:
    """Try until the reload has taken place."""
    while True:
        peer = connect(daemon, "tcp")
        opened.callback(peer.close)
        if "result" in peer.answer_to(peer.request("initialize", {"clientId": "agent:tcp"})):
            return peer
