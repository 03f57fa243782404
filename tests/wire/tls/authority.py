"""An authority of our own for the tests: it signs certificates, good ones and bad ones."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_KEY_IDENTIFIER = x509.SubjectKeyIdentifier.from_public_key
_HOSTS = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Issued:
    """The files of one certificate."""

    certificate: str
    key: str


class Authority:
    """Signs certificates; whoever trusts `ca_file` trusts them."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        self._folder.mkdir()
        self._name = _name(name)
        self._key = generate_private_key(SECP256R1())
        is_authority = x509.BasicConstraints(ca=True, path_length=0)
        may_sign = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            self._begin(self._name, self._key, days=1)
            .add_extension(is_authority, critical=True)
            .add_extension(may_sign, critical=True)
        )
        self.ca_file = self._write("ca.pem", _pem(builder.sign(self._key, hashes.SHA256())))

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = _HOSTS,
        uris: tuple[str, ...] = (),
        days: float = 30,
        is_for_client: bool = False,
    ) -> Issued:
        """Sign a certificate that ends in `days`; in the past, if they are less than 0."""
        key = generate_private_key(SECP256R1())
        names = [_host(host) for host in hosts] + [
            x509.UniformResourceIdentifier(uri) for uri in uris
        ]
        usage = (
            ExtendedKeyUsageOID.CLIENT_AUTH if is_for_client else ExtendedKeyUsageOID.SERVER_AUTH
        )
        builder = self._begin(_name(name), key, days).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(
            self._write(f"{name}.pem", _pem(certificate)), self._write(f"{name}.key", key_pem(key))
        )

    def _begin(
        self, subject: x509.Name, key: EllipticCurvePrivateKey, days: float
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(_KEY_IDENTIFIER(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def _write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return str(path)


def key_pem(key: EllipticCurvePrivateKey | RSAPrivateKey, passphrase: bytes = b"") -> bytes:
    """Return a private key as PEM, protected if there is a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(passphrase)
        if passphrase
        else serialization.NoEncryption(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
