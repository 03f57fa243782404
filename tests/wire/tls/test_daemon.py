"""A whole bus that serves TLS: clients, identities, reloads, and what it refuses to start with."""

from __future__ import annotations

import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from busd import BusUnreachable, CallRefused, Client
from busd.wire.tls_settings import make_client_context
from tests.bus.access.guarded import Grants, write_grants
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.wire.tls.authority import Authority, Issued

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@contextmanager
def open_secure(
    loop: Loop, mine: Issued, grants: Grants = (), **settings: object
) -> Iterator[tuple[Daemon, int]]:
    """Run a strict bus with a third listener, which serves TLS."""
    files = {"policy": "strict", "tls.certificate": mine.certificate, "tls.key": mine.key}
    folder = Path(tempfile.mkdtemp(prefix="busd-test-"))
    write_grants(folder, grants)
    places = ("tls://127.0.0.1:0",)
    # An expired certificate is only warned of, so warnings are no faults here.
    with open_daemon(loop, files | settings, folder=folder, listen=places) as daemon:
        yield daemon, daemon.more_ports[0]


def token_of(daemon: Daemon) -> str:
    return (daemon.folder / "state/token").read_text().strip()


async def say_hello(address: str, tls: ssl.SSLContext, token: str = "", name: str = "a:1") -> str:
    async with Client(name, address=address, tls=tls, token=token) as bus:
        return await bus.ping()


@pytest.mark.parametrize("scheme", ["tls", "wss"])
async def test_a_client_with_the_token_is_served_over_tls(
    loop: Loop, scheme: str, authority: Authority
) -> None:
    trusting = make_client_context(authority.ca_file)
    with open_secure(loop, authority.issue("bus"), identify_loopback=False) as (daemon, port):
        address = f"{scheme}://localhost:{port}"
        assert await say_hello(address, trusting, token_of(daemon))
        with pytest.raises(CallRefused) as refused:
            await say_hello(address, trusting)
        assert refused.value.code == -32005


async def test_a_client_certificate_is_an_identity(authority: Authority) -> None:
    client = authority.issue("bridge", is_for_client=True)
    known = make_client_context(authority.ca_file, client.certificate, client.key)
    grants = [{"name": "bridge", "certificate": "bridge", "client_ids": ["tg:*"]}]
    more = {"tls.client_ca": authority.ca_file, "tls.client_certificate": "optional"}
    with open_secure("uvloop", authority.issue("bus"), grants, **more) as (_, port):
        address = f"tls://localhost:{port}"
        assert await say_hello(address, known, name="tg:1")
        with pytest.raises(CallRefused) as refused:
            await say_hello(address, known, name="agent:1")
        assert refused.value.data == {"rule": "grant.bridge.client_ids"}


async def test_an_expired_certificate_is_refused_by_clients_with_that_reason(
    authority: Authority,
) -> None:
    trusting = make_client_context(authority.ca_file)
    with (
        open_secure("uvloop", authority.issue("bus", days=-1)) as (_, port),
        pytest.raises(BusUnreachable, match="certificate has expired"),
    ):
        await say_hello(f"tls://localhost:{port}", trusting)


async def test_a_reload_shows_new_certificates_to_newcomers_and_keeps_the_others(
    loop: Loop, authority: Authority, tmp_path: Path
) -> None:
    mine = authority.issue("bus")
    other = Authority(tmp_path, "other")
    with open_secure(loop, mine) as (daemon, port):
        address, token = f"tls://localhost:{port}", token_of(daemon)
        first = make_client_context(authority.ca_file)
        async with Client("a:1", address=address, tls=first, token=token) as old:
            renewed = other.issue("bus")
            shutil.copy(renewed.certificate, mine.certificate)
            shutil.copy(renewed.key, mine.key)
            daemon.process.send_signal(signal.SIGHUP)
            trusting = make_client_context(other.ca_file)
            with anyio.fail_after(PATIENCE_SECONDS):
                while not await is_served(address, trusting, token):
                    pass  # the reload is under way
            assert await old.ping()


async def is_served(address: str, tls: ssl.SSLContext, token: str) -> bool:
    try:
        return bool(await say_hello(address, tls, token, "a:2"))
    except BusUnreachable:
        return False


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--listen", "tls://127.0.0.1:0"], "this bus has no certificate; see tls.certificate"),
        (["--listen", "tcp://0.0.0.0:0"], "everybody on the network could read along"),
    ],
)
def test_what_is_not_safe_is_not_served(args: list[str], reason: str, tmp_path: Path) -> None:
    ended = serve(*args, "--state", str(tmp_path / "state"))
    assert ended.returncode == 78
    assert reason in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_an_open_bus_faces_no_network_even_with_tls(authority: Authority, tmp_path: Path) -> None:
    mine = authority.issue("bus")
    config = tmp_path / "busd.toml"
    config.write_text(f'tls.certificate = "{mine.certificate}"\ntls.key = "{mine.key}"\n')
    words = ["--listen", "tls://0.0.0.0:0", "--policy", "open", "--config", str(config)]
    ended = serve(*words, "--state", str(tmp_path / "state"))
    assert ended.returncode == 78
    assert 'set policy = "strict"' in ended.stderr


def test_a_key_that_cannot_be_read_is_named(authority: Authority, tmp_path: Path) -> None:
    config = tmp_path / "busd.toml"
    missing = tmp_path / "nowhere.pem"
    certificate = authority.issue("bus").certificate
    config.write_text(f'tls.certificate = "{certificate}"\ntls.key = "{missing}"\n')
    words = ["--listen", "tls://127.0.0.1:0", "--config", str(config)]
    ended = serve(*words, "--state", str(tmp_path / "state"))
    assert ended.returncode == 78
    assert ended.stderr == f"busd: tls.key: cannot read {missing}: No such file or directory\n"


def serve(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a bus that is not going to start."""
    return subprocess.run(
        [sys.executable, "-m", "busd", "serve", *args],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
