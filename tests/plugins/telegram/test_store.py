"""The bridge's own records: what happens if their file is damaged, or cannot be written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from busd import ConfigError
from busd_plugins.telegram.store import Store
from busd_plugins.telegram.telegram import STORE_FILE
from tests.plugins.telegram.rig import Rig

pytestmark = pytest.mark.anyio
GROUP = -100


async def test_while_the_disk_is_full_no_message_is_lost_and_questions_have_no_buttons(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "prepare", lambda _, db: db.execute("PRAGMA query_only = ON"))
    rig.server.add_chat(GROUP, "supergroup")
    async with rig.both(groups="all") as (_, agent):
        rig.server.says("hello", chat=GROUP)
        [heard] = await agent.heard()
        about = {"id": "p1", "turn": heard["turn"], "input_type": "radio", "options": ["a", "b"]}
        await agent.tell("turn.prompt", GROUP, text="Which?", **about)
        assert (await agent.reply("Which?", GROUP, heard["turn"], prompt_id="p1")).acks[0].success
        [message] = await rig.shown("Which?", chat=GROUP)
    assert message.buttons() == {}
    assert "cannot be used now" in caplog.text


async def test_a_damaged_file_is_moved_aside_and_messages_go_on(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    file = rig.folder / "bridge" / STORE_FILE
    file.parent.mkdir(mode=0o700)
    file.write_bytes(b"this is no database" * 1_000)
    async with rig.both() as (_, agent):
        rig.server.says("hello")
        await agent.heard()
    assert "is damaged" in caplog.text
    assert list(file.parent.glob(f"{file.name}.corrupt-*"))


def test_a_file_that_is_damaged_while_it_is_open_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "telegram.db"
    opened = Store(file)
    for number in range(1_000):
        assert opened.put("asker", str(number), "7" * 100)
    with sqlite3.connect(file) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.write_bytes(b"x" * file.stat().st_size)
    assert opened.find("asker", "999", str) is None
    assert opened.put("asker", "new", "7")
    assert opened.find("asker", "new", str) == "7"
    opened.close()
    assert "is damaged" in caplog.text


def test_a_link_or_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(ConfigError, match=f"cannot open .*{name}: it is "):
            Store(tmp_path / name)
