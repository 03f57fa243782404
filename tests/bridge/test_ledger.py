"""The ledger: private, bounded, and honest when it cannot be written."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from busd.bridge.ledger import Begun, Key, Ledger, LedgerFailed, LedgerLimits
from busd.errors import ConfigError
from tests.journal.test_short_of_disk import ROOT, can_mount

pytestmark = pytest.mark.anyio


def part(number: int) -> Key:
    return Key("part", ("agent:x", "m1", str(number)))


async def test_a_part_is_begun_then_done_then_replaced_by_its_reply(tmp_path: Path) -> None:
    path, reply = tmp_path / "bridge.db", Key("reply", ("agent:x", "m1"))
    ledger = Ledger(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert await ledger.begin(part(1)) == Begun()
    ledger.close()
    ledger = Ledger(path)
    assert await ledger.begin(part(1)) == Begun(is_repeat=True)
    await ledger.forget(part(1))
    assert await ledger.begin(part(1)) == Begun()
    await ledger.put(part(1), "x1")
    assert await ledger.begin(part(1)) == Begun(is_done=True)
    assert await ledger.find(part(1)) == "x1"
    await ledger.finish(reply, [part(1)])
    assert await ledger.is_done(reply)
    assert await ledger.find(part(1)) == ""
    assert await ledger.count() == 1
    ledger.close()


async def test_keys_of_different_words_differ(tmp_path: Path) -> None:
    keys = {
        Key("part", ("a", "b", "1")).digest,
        Key("part", ("a b", "1")).digest,
        Key("part", ("a", "b 1")).digest,
        Key("reply", ("a", "b", "1")).digest,
    }
    assert len(keys) == 4


async def test_what_is_old_or_too_much_is_forgotten(tmp_path: Path) -> None:
    now = 1_000.0
    limits = LedgerLimits(seconds=100.0, count=5, trim_every=1)
    ledger = Ledger(tmp_path / "bridge.db", limits, lambda: now)
    await ledger.put(part(0), "x")
    now = 1_101.0
    for number in range(1, 20):
        now += 1
        await ledger.put(part(number), "x")
        assert await ledger.count() <= 5
    assert [await ledger.is_done(part(number)) for number in (0, 14, 15, 19)] == [
        *(False, False),
        *(True, True),
    ]
    ledger.close()


async def test_a_damaged_ledger_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bridge.db"
    path.write_bytes(b"this is no database at all" * 100)
    ledger = Ledger(path)
    assert await ledger.begin(part(1)) == Begun()
    ledger.close()
    assert "may be posted twice" in caplog.text
    assert len(list(tmp_path.glob("bridge.db.corrupt-*"))) == 1  # noqa: ASYNC240 - one folder


async def test_a_database_of_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE other (x)")
    db.close()
    with pytest.raises(ConfigError, match="it holds something else; move it away"):
        Ledger(path)


async def test_a_ledger_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    ledger = Ledger(path)
    await ledger.put(part(1), "x")
    path.unlink()
    assert await ledger.find(part(1)) == ""
    await ledger.put(part(1), "y")
    ledger.close()
    assert path.exists()


async def test_a_closed_folder_fails_the_operation(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    ledger = Ledger(folder / "bridge.db")
    ledger.close()
    folder.rename(tmp_path / "gone")
    (tmp_path / "state").write_text("a file")
    with pytest.raises(LedgerFailed):
        await ledger.begin(part(1))
    assert ledger.is_failing


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("disk", marks=pytest.mark.skipif(not can_mount(), reason="needs root")),
        "limit",
    ],
)
def test_without_room_nothing_is_posted_that_cannot_be_recorded(how: str, tmp_path: Path) -> None:
    command = ["unshare", "-m"] if how == "disk" else []
    command += [sys.executable, "-m", "tests.bridge.short_of_disk", how, str(tmp_path)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == {
        "before": [],
        "while full": ["the bridge cannot record what it posts", True],
        "is failing": True,
        "after": [],
        "not recorded at first": [],
        "posted": ["before", "after", "late"],
        "repeated": 0,
        "recorded": True,
    }
