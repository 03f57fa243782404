"""Secrets for workers: whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from busd.keeper.credentials import NoCredential, copy_credentials
from tests.plugins.bub.test_sessions import full_disk


def test_a_secret_that_the_disk_has_no_room_for_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * 10_000)
    with full_disk(), pytest.raises(NoCredential, match="cannot be copied"):
        copy_credentials(tmp_path / "credentials/1", {"KEY": str(tmp_path / "key")})
