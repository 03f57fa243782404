"""The record of the bridge, and that only the bridge's own process imports the library."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from busd import ConfigError, Refuse
from busd_plugins.discord.record import Question, Record

ONLY_PLUGIN = """
import sys
from busd.plugin.loader import bundled_folder, use_folders
use_folders([bundled_folder()])
import busd_plugins.discord
sys.exit("discord" in sys.modules)
"""


def test_the_plugin_alone_does_not_import_the_library() -> None:
    assert subprocess.run([sys.executable, "-c", ONLY_PLUGIN], check=False).returncode == 0


def test_a_damaged_file_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "discord.db").write_bytes(b"this is no database" * 1000)
    with closing(Record(tmp_path)) as record:
        record.advance(1, 2, is_direct=True)
        assert record.position(1) == 2
    assert len(list(tmp_path.glob("discord.db.corrupt-*"))) == 1
    assert "is damaged" in caplog.text


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    with closing(Record(tmp_path / "new")):
        assert (tmp_path / "new/discord.db").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "discord.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"discord\.db: it is a symbolic link"):
        Record(tmp_path)


def test_a_position_never_goes_back(tmp_path: Path) -> None:
    with closing(Record(tmp_path)) as record:
        record.advance(1, 20, is_direct=False)
        record.advance(1, 10, is_direct=False)
        assert record.position(1) == 20


def test_it_is_bounded(tmp_path: Path) -> None:
    with closing(Record(tmp_path)) as record:
        for number in range(11_000):
            record.note_own(str(number), number)
        assert record.own("0") is None
        assert record.own("10999") == 10_999
        assert sum(record.own(str(number)) is not None for number in range(11_000)) <= 10_500


def test_a_full_disk_stops_nothing_but_buttons(tmp_path: Path) -> None:
    question = Question("1", "p", "Go on?" * 100_000, ("yes",), ("yes",), "t")
    with closing(Record(tmp_path)) as record:
        record.open().execute("PRAGMA max_page_count = 20")
        with pytest.raises(Refuse, match="cannot be recorded"):
            record.ask("d", question)
        assert record.open_question("d") is None


def test_a_file_that_is_gone_and_cannot_be_made_again_stops_nothing_but_buttons(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Record(tmp_path)) as record:
        (tmp_path / "discord.db").unlink()
        (tmp_path / "discord.db").mkdir()
        record.advance(1, 2, is_direct=True)
        with pytest.raises(Refuse, match="cannot be recorded"):
            record.ask("d", Question("1", "p", "Go on?", ("yes",), ("yes",), "t"))
    assert "cannot be written: " in caplog.text
