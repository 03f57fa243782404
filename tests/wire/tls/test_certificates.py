"""Certificates: whom a client refuses and why, and what a client's own one is good for."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import pytest

from busd.wire.tls_settings import (
    Certificates,
    TlsSettings,
    make_client_context,
    make_server_context,
    read_peer_certificate,
)
from tests.wire.tls.authority import Authority, Issued
from tests.wire.tls.ends import MemoryPair

UNKNOWN = "certificate of an unknown authority (unable to get local issuer certificate)"


def test_a_client_refuses_a_certificate_that_has_expired(
    authority: Authority, client_context: ssl.SSLContext
) -> None:
    expired = authority.issue("expired", days=-1)
    assert why_refused(expired, client_context) == (
        "certificate has expired",
        "the peer says that our certificate has expired",
    )


def test_a_client_refuses_a_certificate_of_an_unknown_authority(
    stranger: Authority, client_context: ssl.SSLContext
) -> None:
    assert why_refused(stranger.issue("unknown"), client_context) == (
        UNKNOWN,
        "the peer does not know the authority behind our certificate",
    )


def test_a_client_refuses_the_certificate_of_another_host(
    authority: Authority, client_context: ssl.SSLContext
) -> None:
    elsewhere = authority.issue("elsewhere", hosts=("bus.example",))
    assert why_refused(elsewhere, client_context) == (
        "certificate is not valid for 'localhost'",
        "the peer refuses our certificate",
    )


def test_a_client_refuses_the_certificate_of_another_number(
    authority: Authority, client_context: ssl.SSLContext
) -> None:
    elsewhere = authority.issue("number", hosts=("192.0.2.1",))
    reason, _ = why_refused(elsewhere, client_context, host="127.0.0.1")
    assert reason == "certificate is not valid for '127.0.0.1'"


def test_a_client_refuses_a_certificate_that_is_for_clients(
    authority: Authority, client_context: ssl.SSLContext
) -> None:
    reason, _ = why_refused(authority.issue("wrong", is_for_client=True), client_context)
    # OpenSSL 3.2 and later say "unsuitable", the ones before "unsupported".
    assert reason.startswith("certificate refused: unsu")
    assert reason.endswith("certificate purpose")


def why_refused(
    issued: Issued, client_context: ssl.SSLContext, host: str = "localhost"
) -> tuple[str, str]:
    """Let a client of ours and a bus of ours meet the other's part; give both reasons."""
    bus_context = make_server_context(TlsSettings(issued.certificate, issued.key))
    client = MemoryPair(client_context, bus_context, host=host)
    client.talk.say(b"never sent")
    client.exchange()
    assert client.peer.plain == b""
    assert client.talk.is_gone
    bus = MemoryPair(bus_context, client_context)
    bus.peer.take(b"")
    bus.exchange()
    bus.peer.take(b"")
    bus.exchange()
    return client.talk.reason, bus.talk.reason


def test_the_certificate_of_a_client_says_who_it_is(authority: Authority, bus: Issued) -> None:
    alice = authority.issue(
        "alice", hosts=("alice.example",), uris=("busd:agent/alice",), is_for_client=True
    )
    pair = meet(authority, bus, alice, "required")
    pair.shake_hands()
    found = pair.talk.certificate
    assert found is not None
    assert found.common_name == "alice"
    assert found.names == ("alice.example", "busd:agent/alice")
    der = ssl.PEM_cert_to_DER_cert(Path(alice.certificate).read_text())
    assert found.fingerprint_sha256 == hashlib.sha256(der).hexdigest()


def test_a_certificate_without_other_names_has_a_common_name(
    authority: Authority, bus: Issued
) -> None:
    pair = meet(authority, bus, authority.issue("plain", hosts=(), is_for_client=True), "optional")
    pair.shake_hands()
    assert pair.talk.certificate is not None
    assert (pair.talk.certificate.common_name, pair.talk.certificate.names) == ("plain", ())


def test_a_client_may_have_no_certificate_if_it_is_optional(
    authority: Authority, bus: Issued
) -> None:
    pair = meet(authority, bus, None, "optional")
    pair.shake_hands()
    pair.send(pair.peer.encrypt(b"let me in\n"))
    assert pair.talk.frames == [b"let me in"]
    assert pair.talk.certificate is None


def test_a_bus_that_asks_for_no_certificate_gets_none(
    authority: Authority, server_context: ssl.SSLContext
) -> None:
    alice = authority.issue("alice-2", is_for_client=True)
    theirs = make_client_context(authority.ca_file, alice.certificate, alice.key)
    pair = MemoryPair(server_context, theirs)
    pair.shake_hands()
    assert pair.talk.certificate is None


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_the_certificate_that_is_required_is_refused(
    version: ssl.TLSVersion, authority: Authority, bus: Issued
) -> None:
    pair = meet(authority, bus, None, "required", version)
    pair.peer.take(b"")
    pair.exchange()
    assert pair.talk.reason == "the peer has no client certificate"
    assert pair.talk.frames == []
    assert pair.peer.problem is not None
    assert pair.has_end


def test_a_client_is_told_that_its_certificate_is_required(
    authority: Authority, bus: Issued, client_context: ssl.SSLContext
) -> None:
    bus_context = make_server_context(asking(authority, bus, "required"))
    client = MemoryPair(client_context, bus_context, host="localhost")
    client.talk.say(b"let me in")
    client.exchange()
    assert client.talk.reason == "the peer wants a client certificate"
    assert client.peer.plain == b""
    assert client.talk.is_gone


def test_a_bus_refuses_the_certificate_of_a_client_that_has_expired(
    authority: Authority, bus: Issued
) -> None:
    old = authority.issue("old", days=-1, is_for_client=True)
    assert why_client_refused(authority, bus, old) == "client certificate has expired"


def test_a_bus_refuses_the_certificate_of_a_client_of_an_unknown_authority(
    authority: Authority, stranger: Authority, bus: Issued
) -> None:
    mallory = stranger.issue("mallory", is_for_client=True)
    assert why_client_refused(authority, bus, mallory) == f"client {UNKNOWN}"


def why_client_refused(authority: Authority, bus: Issued, client: Issued) -> str:
    pair = meet(authority, bus, client, "optional")
    pair.peer.take(b"")
    pair.exchange()
    assert pair.talk.certificate is None
    return pair.talk.reason


def meet(
    authority: Authority,
    bus: Issued,
    client: Issued | None,
    need: str,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> MemoryPair:
    """Let a client, with a certificate or without, connect to a bus that asks for one."""
    theirs = make_client_context(authority.ca_file)
    if client is not None:
        theirs = make_client_context(authority.ca_file, client.certificate, client.key)
    theirs.maximum_version = version
    return MemoryPair(make_server_context(asking(authority, bus, need)), theirs)


def asking(authority: Authority, bus: Issued, need: str) -> TlsSettings:
    """Return the settings of a bus that asks its clients for certificates."""
    is_required = need == "required"
    return TlsSettings(
        bus.certificate, bus.key, authority.ca_file, "required" if is_required else "optional"
    )


# Reload


def test_a_reload_changes_the_certificate_for_newcomers_only(
    authority: Authority, bus: Issued, client_context: ssl.SSLContext
) -> None:
    certificates = Certificates(TlsSettings(bus.certificate, bus.key))
    before = MemoryPair(certificates.context, client_context)
    before.shake_hands()
    renewed = authority.issue("renewed")
    certificates.load(TlsSettings(renewed.certificate, renewed.key))
    after = MemoryPair(certificates.context, client_context)
    after.shake_hands()
    assert shown_to(before) == "bus"
    assert shown_to(after) == "renewed"
    for pair in (before, after):
        pair.talk.echoes = True
        pair.send(pair.peer.encrypt(b"alive\n"))
        assert pair.peer.plain == b"alive\n"


def shown_to(pair: MemoryPair) -> str:
    """Return the name in the certificate that the peer saw."""
    seen = read_peer_certificate(pair.peer.tls)
    assert seen is not None
    return seen.common_name
