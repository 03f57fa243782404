"""What the tests of TLS share: an authority, what it signed, and the loops they run on."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from busd.wire.tls_settings import TlsSettings, make_client_context, make_server_context
from tests.wire.tls.authority import Authority, Issued

Backend = tuple[str, dict[str, Any]]


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """The loop that a test runs on, both its bus and its clients."""
    chosen: Backend = request.param
    return chosen


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that everybody trusts."""
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("tls"), "stranger")


@pytest.fixture(scope="session")
def bus(authority: Authority) -> Issued:
    """The certificate of the bus."""
    return authority.issue("bus")


@pytest.fixture(scope="session")
def server_context(bus: Issued) -> ssl.SSLContext:
    """What the bus shakes hands with."""
    return make_server_context(TlsSettings(bus.certificate, bus.key))


@pytest.fixture(scope="session")
def client_context(authority: Authority) -> ssl.SSLContext:
    """What a client shakes hands with that trusts the authority."""
    return make_client_context(authority.ca_file)
