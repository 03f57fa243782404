"""Sessions: kept over restarts, true in memory, honest when the disk is full."""

from __future__ import annotations

import resource
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from busd_plugins.bub.sessions import NoSessions, Session, Sessions

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def session(number: int, status: str = "running", workspace: str = "/w") -> Session:
    return Session(
        client_id=f"agent:worker-{number}",
        chat_id=str(number),
        channel="telegram",
        channel_type="telegram",
        talkto=f"tg:{number}",
        workspace=workspace,
        status=status,  # type: ignore[arg-type]  # the tests know the words
        created_at="2026-01-01T00:00:00.000Z",
        last_activity="2026-01-01T00:00:00.000Z",
    )


async def read_again(folder: Path) -> dict[str, Session]:
    again = Sessions(folder)
    await again.open()
    found = again.known
    await again.close()
    return found


def rights_of_files(folder: Path) -> set[int]:
    return {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


async def save_many(sessions: Sessions) -> None:
    for number in range(2, 100):
        await sessions.save(session(number, workspace="x" * 500))


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    await sessions.save(session(1))
    # Not closed: as if the bus had been killed.
    assert await read_again(tmp_path) == {"agent:worker-1": session(1)}
    await sessions.close()


async def test_what_was_noted_is_true_at_once_and_written_by_the_next_flush(
    tmp_path: Path,
) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    await sessions.save(session(1))
    sessions.note(session(1, "stopped"))
    assert sessions.known["agent:worker-1"].status == "stopped"
    await sessions.flush()
    assert (await read_again(tmp_path))["agent:worker-1"].status == "stopped"
    await sessions.close()


async def test_a_forgotten_session_is_deleted(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    await sessions.save(session(1))
    await sessions.save(session(2))
    sessions.forget("agent:worker-1")
    await sessions.close()
    assert list(await read_again(tmp_path)) == ["agent:worker-2"]


async def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    await sessions.save(session(1))
    assert rights_of_files(tmp_path) == {0o600}
    await sessions.close()


async def test_a_full_disk_changes_nothing_and_is_said(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    await sessions.save(session(1))
    with full_disk(), pytest.raises(NoSessions, match=r"sessions cannot be kept: .*agents\.db"):
        await save_many(sessions)
    kept = dict(sessions.known)
    await sessions.save(session(200))  # there is room again
    await sessions.close()
    assert await read_again(tmp_path) == kept | {"agent:worker-200": session(200)}


async def test_what_a_full_disk_did_not_take_is_written_later(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    await sessions.save(session(1))
    sessions.note(session(1, "failed", "x" * 5_000))
    with full_disk(), pytest.raises(NoSessions):
        await sessions.flush()
    assert sessions.known["agent:worker-1"].status == "failed"
    await sessions.flush()
    await sessions.close()
    assert (await read_again(tmp_path))["agent:worker-1"].status == "failed"


async def test_a_record_has_the_form_of_the_reference(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    await sessions.save(session(1))
    record = msgspec.to_builtins(sessions.known["agent:worker-1"])
    assert record["client_id"] == "agent:worker-1"
    assert record["systemd_unit"] == ""
    assert record["stopped_at"] is None
    await sessions.close()


async def test_another_process_may_read_while_we_write(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    reader = sqlite3.connect(tmp_path / "agents.db")
    await sessions.save(session(1))
    assert reader.execute("SELECT count(*) FROM session").fetchone() == (1,)
    reader.close()
    await sessions.close()


async def test_a_record_that_cannot_be_read_costs_nobody_else_theirs(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    await sessions.open()
    await sessions.save(session(1))
    await sessions.close()
    db = sqlite3.connect(tmp_path / "agents.db")
    with db:
        db.execute("INSERT INTO session VALUES ('agent:worker-2', '{\"status\": \"new words\"}')")
        db.execute("INSERT INTO session VALUES ('agent:worker-3', X'FF00')")
    db.close()
    assert await read_again(tmp_path) == {"agent:worker-1": session(1)}
