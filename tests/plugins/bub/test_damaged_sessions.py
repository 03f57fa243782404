"""An agents.db that is damaged is moved aside; one that is a link is not followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from busd_plugins.bub.sessions import FILE, NoSessions, Sessions
from tests.daemons import Loop, open_daemon
from tests.plugins.bub.test_sessions import session
from tests.wire_peers import connect

pytestmark = pytest.mark.anyio


async def opened(state: Path) -> Sessions:
    sessions = Sessions(state)
    await sessions.open()
    return sessions


def spoil(path: Path) -> bytes:
    """Overwrite all pages but the first; return what is in the file then."""
    content = path.read_bytes()
    assert len(content) > 8192
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    return path.read_bytes()


def moved_aside(state: Path) -> list[Path]:
    """Return the damaged database files; not what SQLite keeps beside them."""
    return [each for each in state.glob(f"{FILE}.corrupt-*") if each.name.endswith("Z")]


async def test_a_file_that_is_no_database_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    with capture_logs() as logs:
        sessions = await opened(tmp_path)
    assert sessions.known == {}
    [aside] = moved_aside(tmp_path)
    assert aside.read_bytes() == b"no database" * 1000
    assert [line["event"] for line in logs] == ["sessions.moved_aside"]
    await sessions.save(session(1))
    await sessions.close()
    again = await opened(tmp_path)
    assert list(again.known) == ["agent:worker-1"]
    await again.close()


async def test_a_file_with_damaged_pages_is_moved_aside(tmp_path: Path) -> None:
    sessions = await opened(tmp_path)
    for number in range(200):
        sessions.note(session(number))
    await sessions.close()
    spoiled = spoil(tmp_path / FILE)
    sessions = await opened(tmp_path)
    assert sessions.known == {}
    [aside] = moved_aside(tmp_path)
    assert aside.read_bytes() == spoiled
    await sessions.close()


async def test_a_file_that_is_damaged_while_it_is_used_gives_way_to_one_with_all_sessions(
    tmp_path: Path,
) -> None:
    sessions = await opened(tmp_path)
    for number in range(200):
        sessions.note(session(number))
    await sessions.flush()
    db = sessions._open()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.execute("PRAGMA cache_size = 0")
    db.execute("PRAGMA shrink_memory")
    spoil(tmp_path / FILE)
    await sessions.save(session(1000))
    await sessions.close()
    again = await opened(tmp_path)
    assert len(again.known) == 201
    await again.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
async def test_a_link_in_place_of_the_sessions_is_not_followed(tmp_path: Path, suffix: str) -> None:
    state, target = tmp_path / "state", tmp_path / "target"
    state.mkdir()
    (state / f"{FILE}{suffix}").symlink_to(target)
    target.touch()
    with pytest.raises(NoSessions, match="symbolic link"):
        await opened(state)
    assert target.read_bytes() == b""


def test_agents_work_though_their_file_was_damaged(loop: Loop) -> None:
    with open_daemon(loop) as daemon:
        assert daemon.stop() == 0
        (daemon.folder / "state" / FILE).write_bytes(b"\0garbage" * 4096)
        daemon.start_again(loop)
        owner = connect(daemon, "unix")
        owner.initialize("owner")
        [bub] = [each for each in owner.call("bus.listPlugins")["plugins"] if each["name"] == "bub"]
        assert (bub["state"], bub["faults"]) == ("running", 0)
        assert owner.call("agents.list")["agents"] == []
        assert moved_aside(daemon.folder / "state")
        owner.close()
