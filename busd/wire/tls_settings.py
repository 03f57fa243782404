"""Certificates: those of a bus or a client, the authorities they trust, and those of peers."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from busd.errors import ConfigError
from busd.quantities import about
from busd.wire.plain_file import read_plain_file

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PRIVATE_KEY = re.compile("-----BEGIN (\\w+ )*PRIVATE KEY-----")
_MAX_FILE_BYTES = 16 * 1024 * 1024  # all authorities of a system are 0.2 MB
_DAY_SECONDS = 86_400
_WARN_DAYS = 14
# The last one is said when not even the kinds of key and certificate agree.
_NOT_ITS_KEY = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)  # OpenSSL's X509_V_ERR_…
_WRONG_NAME = (62, 63, 64)
_REASONS = {
    "NO_SHARED_CIPHER": "the peer has no cipher in common with us",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer has no client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer refuses our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer says that our certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer refuses our certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer wants a client certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer speaks no version of TLS that we do",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not know the authority behind our certificate",
    "UNSUPPORTED_PROTOCOL": "the peer speaks no version of TLS that we do",
}


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a bus needs to serve `tls://` and `wss://`; all files are PEM."""

    certificate: Annotated[
        str, about("PEM file with the certificate chain for `tls://` and `wss://`.")
    ] = ""
    key: Annotated[
        str, about("PEM file with the private key, if the certificate's file does not contain it.")
    ] = ""
    client_ca: Annotated[
        str, about("PEM file with the authority that signs the certificates of clients.")
    ] = ""
    client_certificate: Annotated[
        Literal["none", "optional", "required"],
        about("Whether clients present a certificate: `none`, `optional` or `required`."),
    ] = "none"


class Certificates:
    """The certificates of a bus; a reload replaces them for new connections only."""

    context: ssl.SSLContext
    warnings: list[str]

    def __init__(self, settings: TlsSettings) -> None:
        self.load(settings)

    def load(self, settings: TlsSettings) -> None:
        """Read the files; raise ConfigError, without changing anything, if one is unusable."""
        context = make_server_context(settings)
        self.warnings = find_warnings(settings, context)
        self.context = context


def make_server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context for new connections; raise ConfigError with the file and the fault."""
    if not settings.certificate:
        raise ConfigError("tls.certificate: name the certificate to serve TLS with")
    if (settings.client_certificate == "none") != (not settings.client_ca):
        raise ConfigError(
            "tls.client_ca and tls.client_certificate need each other: name the authority and say"
            ' "optional" or "required", or set neither'
        )
    context = _restrict(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    # Connections are long-lived: tickets to resume a session would be wasted bytes, and would
    # admit a client whose certificate has expired since.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    _load_certificate(context, settings.certificate, settings.key, "tls.")
    if settings.client_ca:
        authorities = _read_authorities(settings.client_ca, "tls.client_ca")
        context.load_verify_locations(cadata=authorities)
        is_required = settings.client_certificate == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def make_client_context(
    ca_file: str | None = None, certificate: str = "", key: str = ""
) -> ssl.SSLContext:
    """Return a client's TLS context, which trusts `ca_file` or else the system's authorities.

    Raise ConfigError. Reading the system's authorities takes 80 ms: reuse the context.
    """
    authorities = _read_authorities(ca_file, "CA file") if ca_file else None
    context = _restrict(ssl.create_default_context(cadata=authorities))
    if certificate:
        _load_certificate(context, certificate, key, "client ")
    return context


def _restrict(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _read_authorities(path: str, what: str) -> str:
    text = _read_text(path, what)
    if not _CERTIFICATE.search(text):
        raise ConfigError(f"{what}: {path} holds no certificate in PEM form")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except ssl.SSLError as problem:
        raise ConfigError(f"{what}: {path} cannot be used: {_message_of(problem)}") from None
    return text


def _load_certificate(context: ssl.SSLContext, path: str, key: str, where: str) -> None:
    """Load a certificate and its key; `where` is the prefix of the settings' names."""
    if not _CERTIFICATE.search(_read_text(path, f"{where}certificate")):
        raise ConfigError(f"{where}certificate: {path} holds no certificate in PEM form")
    key = key or path
    if not _PRIVATE_KEY.search(_read_text(key, f"{where}key")):
        raise ConfigError(f"{where}key: {key} holds no private key in PEM form")

    def refuse_to_ask() -> str:
        """Raise instead of letting OpenSSL ask on the terminal and wait."""
        raise ConfigError(f"{where}key: {key} is protected by a passphrase; busd cannot ask for it")

    try:
        context.load_cert_chain(path, key, refuse_to_ask)
    except ssl.SSLError as problem:
        if problem.reason in _NOT_ITS_KEY:
            raise ConfigError(f"{where}key: {key} is not the key of {path}") from None
        raise ConfigError(
            f"{where}certificate: {path} with key {key} cannot be used: {_message_of(problem)}"
        ) from None


def _read_text(path: str, what: str) -> str:
    try:
        content = read_plain_file(path, _MAX_FILE_BYTES)
        return content.decode("ascii", "ignore")  # comments may be in any script
    except OSError as problem:
        raise ConfigError(f"{what}: cannot read {path}: {problem.strerror}") from None


# Problems that do not prevent the bus from starting, but should be fixed


def find_warnings(settings: TlsSettings, context: ssl.SSLContext) -> list[str]:
    """Return the problems of a certificate and key that can be used nevertheless."""
    warnings: list[str] = []
    key = settings.key or settings.certificate
    if Path(key).stat().st_mode & 0o004:
        warnings += [f"tls.key: everybody can read {key}; chmod o-r it and think of a new key"]
    if fault := _rehearse(settings.certificate, context):
        warnings += [f"tls.certificate: {settings.certificate}: {fault}"]
    return warnings


def _rehearse(path: str, context: ssl.SSLContext) -> str:
    """Perform a handshake in memory with a client that trusts this certificate.

    The `ssl` module cannot return the expiry date of a certificate file, but a client's handshake
    reports it, and whether clients will accept the certificate.
    """
    found = _CERTIFICATE.search(_read_text(path, "tls.certificate"))
    assert found is not None
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(cadata=found[0])
    to_bus, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_bus)
    bus = context.wrap_bio(to_bus, to_client, server_side=True)
    for side in (client, bus, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as problem:
            return f"{problem.verify_message}; clients will refuse it"
        except ssl.SSLError as problem:
            return f"{_message_of(problem)}; clients will refuse it"
    return _warn_of_end(client)


def _warn_of_end(client: ssl.SSLObject) -> str:
    found: Any = client.getpeercert()  # typeshed does not type its values
    end = ssl.cert_time_to_seconds(found["notAfter"])
    is_near = end - time.time() < _WARN_DAYS * _DAY_SECONDS
    return f"certificate expires soon, on {found['notAfter']}" if is_near else ""


# Certificates of peers


class PeerCertificate(msgspec.Struct, frozen=True):
    """The identity of the other side, as certified by an authority that we trust."""

    common_name: str
    names: tuple[str, ...]  # DNS names and URIs
    fingerprint_sha256: str


def read_peer_certificate(tls: ssl.SSLObject) -> PeerCertificate | None:
    """Return the certificate of the other side, if one was requested."""
    der = tls.getpeercert(binary_form=True)
    found: Any = tls.getpeercert()  # typeshed does not type its values
    if not der or not found:
        return None
    subject = [pair for part in found["subject"] for pair in part]
    common_names = [value for kind, value in subject if kind == "commonName"]
    names = [value for kind, value in found.get("subjectAltName", ()) if kind in ("DNS", "URI")]
    return PeerCertificate(
        common_names[-1] if common_names else "", tuple(names), hashlib.sha256(der).hexdigest()
    )


def explain(problem: ssl.SSLError, *, is_client: bool) -> str:
    """Return a readable message for an OpenSSL error."""
    if not isinstance(problem, ssl.SSLCertVerificationError):
        return _REASONS.get(problem.reason) or _message_of(problem)
    said = problem.verify_message
    if problem.verify_code in _UNKNOWN_AUTHORITY:
        said = f"certificate of an unknown authority ({said})"
    elif problem.verify_code in _WRONG_NAME:
        said = said.partition(", ")[2].rstrip(".")
    elif not said.startswith("certificate "):
        said = f"certificate refused: {said}"
    return said if is_client else f"client {said}"


def _message_of(problem: ssl.SSLError) -> str:
    return (problem.reason or "OpenSSL does not understand it").lower().replace("_", " ")
