"""A real browser with a hostile page: nothing that it sends reaches a method of the bus.

    .venv/bin/python -m tests.browser.test_browser

writes down anew what the browser sends; `test_transcript.py` sends that without a browser.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.page import INTRUDER
from tests.browser.relay import Relay, open_relay
from tests.daemons import Daemon, Loop, open_daemon
from tests.wire_peers import Peer, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
TRANSCRIPT = Path(__file__).parent / "requests.json"
_SECONDS = 90.0  # for all attempts on a busy machine; they take about five
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)
# The page's site, and the host that its script attacks. `localhost` of the relay's own port is for
# the bus a page of its own; a WebSocket is its right, so there all but that is tried.
SITES = {
    "same origin": ("localhost", "localhost:{port}", False),
    "another origin": ("localhost", "127.0.0.1:{port}", True),
    "a rebound name": ("evil.example", "evil.example:{port}", True),
}


@contextmanager
def open_browser(url: str) -> Iterator[None]:
    """Run a browser with a new profile that shows a page."""
    with tempfile.TemporaryDirectory(prefix="busd-browser-") as profile:
        process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": profile},
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # Its last helpers may still write there.
            shutil.rmtree(profile, ignore_errors=True)
            Path(profile).mkdir(exist_ok=True)


def attack(daemon: Daemon, site: str) -> Relay:
    """Have a browser show the page and try everything; return what it sent and was told."""
    host, target, with_socket = SITES[site]
    with open_relay(daemon.port, target, with_socket=with_socket) as relay:
        with open_browser(f"http://{host}:{relay.port}/page"):
            assert relay.is_done.wait(_SECONDS), "the page has not come to its end"
        return relay


def assert_untouched(daemon: Daemon, witness: Peer) -> None:
    """Make sure that nobody joined, and that no message was sent."""
    status = witness.call("getStatus")
    names = [each["clientId"] for each in status["connections"]]
    assert INTRUDER not in names
    assert sorted(name for name in names if not name.startswith("plugin:")) == ["agent:witness"]
    witness.expect_nothing()
    assert witness.call("bus.log", {})["entries"] == []


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium; the transcript is tested anyway")
@pytest.mark.parametrize("site", SITES)
def test_nothing_that_a_page_sends_reaches_a_method(site: str) -> None:
    loop: Loop = "uvloop"  # both loops read the same bytes: see the transcript
    with open_daemon(loop) as daemon:
        witness = connect(daemon, "unix")
        witness.initialize("agent:witness")
        relay = attack(daemon, site)
        assert len(relay.sent) >= 5
        assert "open" not in relay.said.values()
        assert not any(line[:1] in b"{[ \t\r\n" for line in relay.sent)
        assert_untouched(daemon, witness)
        witness.close()


def write_transcript() -> None:
    """Write down what the browser sends from each site."""
    found: dict[str, list[str]] = {}
    for site in SITES:
        with open_daemon("uvloop") as daemon:
            relay = attack(daemon, site)
            print(site, len(relay.sent), json.dumps(relay.said, indent=1))
            found[site] = sorted({each.decode("latin-1") for each in relay.sent})
    TRANSCRIPT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    write_transcript()
