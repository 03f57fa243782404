"""Secrets are read where nobody else can read them, and never shown; leases are exclusive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from busd import Bridge
from busd.bridge import read_secret
from busd.bridge.lease import lease_secret, lock_folder
from busd.errors import ConfigError

TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"


@pytest.fixture(autouse=True)
def no_secret_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOY_TOKEN", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)


def test_a_secret_is_the_file_else_the_credential_else_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_TOKEN", "of the environment")
    assert read_secret("TOY_TOKEN").value == "of the environment"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_secret("TOY_TOKEN").value == "of the environment"
    (tmp_path / "TOY_TOKEN").write_text("of the credential\n")
    assert read_secret("TOY_TOKEN").value == "of the credential"
    file = tmp_path / "token"
    file.write_text(" of the file \n")
    file.chmod(0o600)
    assert read_secret("TOY_TOKEN", file).value == "of the file"


def test_without_a_secret_all_places_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        read_secret("TOY_TOKEN")
    for place in ("file", "$CREDENTIALS_DIRECTORY/TOY_TOKEN", "environment variable TOY_TOKEN"):
        assert place in str(caught.value)


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (TOKEN, 0o644, "everybody may read"),
        (TOKEN, 0o620, "may write"),
        ("", 0o600, "is empty"),
        (f"{TOKEN}\n{TOKEN}", 0o600, "more than one line"),
        ("\udcff", 0o600, "is not text"),
        ("x" * 100_000, 0o600, "cannot read"),
    ],
)
def test_a_file_that_is_not_safe_or_no_secret_is_refused(
    tmp_path: Path, content: str, mode: int, reason: str
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content.encode(errors="surrogateescape"))
    file.chmod(mode)
    with pytest.raises(ConfigError, match=reason) as caught:
        read_secret("TOY_TOKEN", file)
    assert TOKEN not in str(caught.value)


def test_a_missing_file_is_not_replaced_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_TOKEN", TOKEN)
    with pytest.raises(ConfigError, match="No such file"):
        read_secret("TOY_TOKEN", tmp_path / "none")


def test_a_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_TOKEN", TOKEN)
    secret = read_secret("TOY_TOKEN")
    assert TOKEN not in f"{secret} {secret!r} {[secret]}"


HOLD = """
import sys
from pathlib import Path
from busd.bridge.lease import lease_secret
with lease_secret(sys.argv[1], Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_never_hold_the_lease_of_one_secret(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    command = [sys.executable, "-c", HOLD, TOKEN, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(ConfigError, match=f"process {other.pid} uses this token already"),
            lease_secret(TOKEN, folder),
        ):
            pass
        with lease_secret("another", folder):
            pass
        other.kill()
    with lease_secret(TOKEN, folder):  # the kernel has released it
        assert TOKEN not in "".join(each.name + each.read_text() for each in folder.iterdir())


def test_a_bridge_leases_in_the_state_folder_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    bridge = Bridge("toy-bridge", "toy", state=tmp_path / "bridge")
    with bridge.lease(TOKEN), pytest.raises(ConfigError, match="already"), bridge.lease(TOKEN):
        pass


def test_a_folder_belongs_to_one_bridge(tmp_path: Path) -> None:
    folder = tmp_path / "bridge"
    with (
        lock_folder(folder),
        pytest.raises(ConfigError, match="uses the folder"),
        lock_folder(folder),
    ):
        pass
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="may write"), lock_folder(folder):
        pass
