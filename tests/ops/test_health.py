"""`/livez` and `/readyz`: answered by the loop that routes, or not at all."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from busd.ops.pages import host_names
from busd.settings.config import Settings
from busd.wire.http_gate import HttpGate, Page
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon, serve_args
from tests.http_pages import fetch, fetch_over
from tests.wire_peers import join_by, open_tcp, open_unix, until_nobody_listens

# A bus with one method more: it holds the loop up until a file is there.
_FREEZING_BUS = """
import sys, time
from pathlib import Path
from busd.bus.methods import Done, Nothing, methods
from busd.cli.main import main

until = Path(sys.argv.pop(1))

@methods.register("test.freeze", Nothing, Done)
def freeze(peer, params, asker, request_id, /):
    while not until.exists():
        time.sleep(0.01)
    return Done()

main()
"""


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_bus_that_runs_is_alive_and_ready(daemon: Daemon, path: str) -> None:
    page = fetch(daemon, path)
    assert (page.status, page.text) == (200, "ok\n")
    assert page.headers["connection"] == "close"
    assert fetch_over(open_unix(daemon.path), path).status == 200
    assert fetch(daemon, f"{path}?verbose").status == 200


def test_the_pages_ask_for_no_token(loop: Loop) -> None:
    with open_daemon(loop, {"policy": "strict"}) as daemon:
        for path in ("/livez", "/readyz", "/metrics"):
            assert fetch(daemon, path).status == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_a_page_of_another_site_may_not_look(daemon: Daemon, path: str) -> None:
    page = fetch(daemon, path, "Origin: https://evil.example")
    assert page.status == 403
    assert page.text == "Origin 'https://evil.example' may not use this bus; see allowed_origins.\n"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7892", "localhost.evil.example", "127.0.0.1.evil", "", "["],
)
def test_a_site_whose_name_leads_to_the_bus_may_not_look(
    daemon: Daemon, path: str, host: str
) -> None:
    page = fetch(daemon, path, hosts=[host])
    assert page.status == 403
    assert page.text == f"Host {host!r} is no name of this bus; see allowed_hosts.\n"
    assert fetch(daemon, path, hosts=["localhost", host]).status == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:7892", "127.0.0.1", "127.0.0.1:9", "[::1]:7892", "192.0.2.7"]
)
def test_a_plain_address_and_localhost_are_names_of_the_bus(daemon: Daemon, host: str) -> None:
    assert fetch(daemon, "/metrics", hosts=[host]).status == 200


def test_who_names_no_host_is_no_browser(daemon: Daemon) -> None:
    assert fetch(daemon, "/livez", hosts=[]).status == 200


def test_where_the_bus_listens_is_a_name_of_it() -> None:
    settings = Settings(listen=["unix:/tmp/bus.sock", "tls://Bus.example:7892"])
    gate = HttpGate((), {"/livez": lambda: Page(200, "ok\n")}, host_names(settings))
    for host, status in (("bus.example:7892", 200), ("other.example:7892", 403)):
        page = gate.answer(Request("/livez", Headers(Host=host)))
        assert page is not None
        assert page.status == status


def test_there_is_no_other_page(daemon: Daemon) -> None:
    assert fetch(daemon, "/healthz").status == 404
    assert fetch(daemon, "/livez/").status == 404


def test_a_bus_that_stops_is_alive_but_not_ready(loop: Loop, opened: ExitStack) -> None:
    """Its listeners are closed by then: only who is connected already can ask."""
    with open_daemon(loop) as daemon:
        alice, bob = (join_by(daemon, "unix", name, opened) for name in ("alice", "bob"))
        early = [opened.enter_context(open_tcp(daemon.port)) for _ in range(3)]
        sent = alice.send_message("bob")
        message = bob.next_message()
        daemon.signal(signal.SIGTERM)
        until_nobody_listens(daemon)
        ready, live, metrics = (
            fetch_over(sock, path)
            for sock, path in zip(early, ("/readyz", "/livez", "/metrics"), strict=True)
        )
        assert (ready.status, ready.text) == (503, "stopping\n")
        assert live.status == metrics.status == 200
        assert "busd_messages_unanswered 1.0\n" in metrics.text
        bob.answer(message, {"success": True})
        assert alice.answer_to(sent)["result"]["acks"][0]["success"]
        assert daemon.wait() == 0


def test_a_loop_that_hangs_answers_nothing(loop: Loop, opened: ExitStack) -> None:
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    opened.callback(shutil.rmtree, folder)
    thawed = folder / "thawed"
    args = serve_args(folder, loop)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _FREEZING_BUS, str(thawed), *args],
            stdout=subprocess.PIPE,
            stderr=log,
        )
    opened.callback(process.kill)
    daemon = Daemon(process, folder)
    opened.callback(daemon.close)
    alice = join_by(daemon, "unix", "alice", opened)
    frozen = alice.request("test.freeze")
    for path in ("/livez", "/readyz", "/metrics"):
        with open_tcp(daemon.port) as sock:
            sock.settimeout(0.3)
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            with pytest.raises(socket.timeout):
                sock.recv(1)
    thawed.touch()
    assert alice.answer_to(frozen)["result"] == {"success": True}
    assert fetch(daemon, "/livez").status == 200
    process.terminate()
    assert process.wait(PATIENCE_SECONDS) == 0
