"""kill -9 while entries are kept."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.store.crash import Rounds


def test_a_store_can_be_killed_at_any_time(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path / "gateway.db", seed=1)
    rounds.run(25)
    assert rounds.confirmed
    assert rounds.unconfirmed
