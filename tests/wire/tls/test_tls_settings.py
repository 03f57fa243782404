"""The settings of TLS: what is refused with one clear line, and what is only warned of."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key

from busd.errors import ConfigError
from busd.wire.tls_settings import (
    Certificates,
    TlsSettings,
    make_client_context,
    make_server_context,
)
from tests.wire.tls.authority import Authority, Issued, key_pem

NOBODY = 65_534


def why_not(settings: TlsSettings) -> str:
    """Return the line that an operator reads."""
    with pytest.raises(ConfigError) as caught:
        make_server_context(settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def warnings_of(issued: Issued) -> list[str]:
    return Certificates(TlsSettings(issued.certificate, issued.key)).warnings


# What is refused


def test_a_certificate_must_be_named() -> None:
    assert why_not(TlsSettings()) == "tls.certificate: name the certificate to serve TLS with"


def test_a_missing_file_is_named(bus: Issued, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    reason = f"cannot read {missing}: No such file or directory"
    assert why_not(TlsSettings(missing, bus.key)) == f"tls.certificate: {reason}"
    assert why_not(TlsSettings(bus.certificate, missing)) == f"tls.key: {reason}"
    assert (
        why_not(TlsSettings(bus.certificate, bus.key, missing, "required"))
        == f"tls.client_ca: {reason}"
    )


def test_a_folder_in_the_place_of_a_key_is_named(bus: Issued, tmp_path: Path) -> None:
    assert why_not(TlsSettings(bus.certificate, str(tmp_path))) == (
        f"tls.key: cannot read {tmp_path}: Is a directory"
    )


def test_a_key_that_may_not_be_read_is_named(bus: Issued, tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    key.write_bytes(Path(bus.key).read_bytes())
    key.chmod(0)
    certificate = tmp_path / "bus.pem"
    certificate.write_bytes(Path(bus.certificate).read_bytes())
    with without_privileges(tmp_path):
        reason = why_not(TlsSettings(str(certificate), str(key)))
    assert reason == f"tls.key: cannot read {key}: Permission denied"


@contextmanager
def without_privileges(folder: Path) -> Iterator[None]:
    """Be nobody for a while, if we are root, who may read everything."""
    if os.geteuid() != 0:
        yield
        return
    closed = [place for place in (folder, *folder.parents) if not place.stat().st_mode & 0o001]
    modes = [place.stat().st_mode for place in closed]
    for place in closed:
        place.chmod(0o755)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        for place, mode in zip(closed, modes, strict=True):
            place.chmod(mode)


def test_the_key_of_another_certificate_is_refused(
    bus: Issued, authority: Authority, tmp_path: Path
) -> None:
    other = authority.issue("other")
    assert why_not(TlsSettings(bus.certificate, other.key)) == (
        f"tls.key: {other.key} is not the key of {bus.certificate}"
    )
    rsa = tmp_path / "rsa.key"
    rsa.write_bytes(key_pem(generate_rsa_key(65_537, 2_048)))
    assert why_not(TlsSettings(bus.certificate, str(rsa))) == (
        f"tls.key: {rsa} is not the key of {bus.certificate}"
    )


def test_a_certificate_and_a_key_in_each_others_place_are_refused(bus: Issued) -> None:
    assert why_not(TlsSettings(bus.key, bus.key)) == (
        f"tls.certificate: {bus.key} holds no certificate in PEM form"
    )
    assert why_not(TlsSettings(bus.certificate, bus.certificate)) == (
        f"tls.key: {bus.certificate} holds no private key in PEM form"
    )


def test_a_certificate_file_needs_a_key_in_it_or_beside_it(bus: Issued, tmp_path: Path) -> None:
    assert why_not(TlsSettings(bus.certificate)) == (
        f"tls.key: {bus.certificate} holds no private key in PEM form"
    )
    both = tmp_path / "both.pem"
    both.write_bytes(Path(bus.key).read_bytes() + Path(bus.certificate).read_bytes())
    make_server_context(TlsSettings(str(both)))


def test_a_certificate_that_is_damaged_is_refused(bus: Issued, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    lines = Path(bus.certificate).read_text().splitlines(keepends=True)
    damaged.write_text("".join(lines[:2] + lines[4:]))
    assert why_not(TlsSettings(str(damaged), bus.key)).startswith(
        f"tls.certificate: {damaged} with key {bus.key} cannot be used: "
    )
    assert why_not(TlsSettings(bus.certificate, bus.key, str(damaged), "optional")).startswith(
        f"tls.client_ca: {damaged} cannot be used: "
    )


def test_a_key_with_a_passphrase_is_refused_without_asking(bus: Issued, tmp_path: Path) -> None:
    key = tmp_path / "protected.key"
    key.write_bytes(key_pem(generate_private_key(SECP256R1()), b"open sesame"))
    assert why_not(TlsSettings(bus.certificate, str(key))) == (
        f"tls.key: {key} is protected by a passphrase; busd cannot ask for it"
    )


@pytest.mark.parametrize("has_authority", [True, False])
def test_an_authority_for_clients_and_asking_them_need_each_other(
    has_authority: bool, bus: Issued, authority: Authority
) -> None:
    settings = (
        TlsSettings(bus.certificate, bus.key, authority.ca_file)
        if has_authority
        else TlsSettings(bus.certificate, bus.key, "", "required")
    )
    assert why_not(settings).startswith("tls.client_ca and tls.client_certificate need each other")


def test_an_unknown_setting_or_value_is_refused() -> None:
    for wrong in ({"certifcate": "x"}, {"client_certificate": "maybe"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, TlsSettings)


def test_a_client_names_the_file_that_it_cannot_use(bus: Issued, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match=r"^CA file: cannot read .*: No such file or directory$"):
        make_client_context(missing)
    with pytest.raises(ConfigError, match=r"^CA file: .* holds no certificate in PEM form$"):
        make_client_context(bus.key)
    with pytest.raises(ConfigError, match=r"^client key: cannot read .*: No such file"):
        make_client_context(None, bus.certificate, missing)


# What is warned of


def test_a_good_certificate_gives_no_warning(bus: Issued) -> None:
    assert warnings_of(bus) == []


def test_an_expired_certificate_is_warned_of_and_served(authority: Authority) -> None:
    old = authority.issue("out-of-date", days=-1)
    assert warnings_of(old) == [
        f"tls.certificate: {old.certificate}: certificate has expired; clients will refuse it"
    ]


def test_a_certificate_that_is_not_for_servers_is_warned_of(authority: Authority) -> None:
    wrong = authority.issue("not-for-servers", is_for_client=True)
    (warning,) = warnings_of(wrong)
    assert warning.endswith("certificate purpose; clients will refuse it")


def test_a_certificate_that_expires_soon_is_warned_of(authority: Authority) -> None:
    (warning,) = warnings_of(authority.issue("soon", days=13))
    assert "certificate expires soon, on " in warning
    assert warnings_of(authority.issue("later", days=15)) == []


def test_a_key_that_everybody_can_read_is_warned_of(authority: Authority) -> None:
    issued = authority.issue("open-key")
    Path(issued.key).chmod(0o644)
    assert warnings_of(issued) == [
        f"tls.key: everybody can read {issued.key}; chmod o-r it and think of a new key"
    ]
    Path(issued.key).chmod(0o640)
    assert warnings_of(issued) == []


def test_a_bus_that_requires_certificates_of_clients_is_checked_all_the_same(
    authority: Authority,
) -> None:
    old = authority.issue("old-and-asking", days=-1)
    settings = TlsSettings(old.certificate, old.key, authority.ca_file, "required")
    assert len(Certificates(settings).warnings) == 1


# Reload


def test_a_reload_that_fails_changes_nothing(bus: Issued) -> None:
    certificates = Certificates(TlsSettings(bus.certificate, bus.key))
    before = certificates.context
    with pytest.raises(ConfigError):
        certificates.load(TlsSettings(bus.certificate, "missing.key"))
    assert certificates.context is before


def test_a_reload_reads_the_same_files_again(authority: Authority, tmp_path: Path) -> None:
    bus = tmp_path / "bus.pem"
    settings = TlsSettings(str(bus))

    def put(issued: Issued) -> None:
        bus.touch(mode=0o600)
        bus.write_bytes(Path(issued.certificate).read_bytes() + Path(issued.key).read_bytes())

    put(authority.issue("first", days=-1))
    certificates = Certificates(settings)
    assert len(certificates.warnings) == 1
    put(authority.issue("second"))
    certificates.load(settings)
    assert certificates.warnings == []


# What is good by default


def test_old_versions_and_weak_choices_are_off(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    for context in (server_context, client_context):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_COMPRESSION
        assert context.options & ssl.OP_NO_RENEGOTIATION
    assert client_context.check_hostname
    assert client_context.verify_mode is ssl.CERT_REQUIRED


def test_a_client_that_names_an_authority_trusts_no_other(client_context: ssl.SSLContext) -> None:
    assert len(client_context.get_ca_certs()) == 1
