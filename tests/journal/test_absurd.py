"""Absurd questions to the activity log, and absurd settings of it: bounded answers, no end."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from busd.journal.file import JournalFile
from busd.journal.query import tail, trace
from busd.journal.settings import JournalSettings
from busd.journal.writer import JournalWriter
from tests.bus.access.guarded import error_of
from tests.daemons import Daemon
from tests.journal.rows import PATIENCE_SECONDS, T0, batch, ended, statuses
from tests.wire_peers import Json, join_by

USES = 160_000


@pytest.mark.parametrize("keep_days", [1e9, 1e300])
def test_the_writer_lives_on_with_any_age(tmp_path: Path, keep_days: float) -> None:
    path = tmp_path / "journal.db"
    writer = JournalWriter(path, JournalSettings(keep_days=keep_days))
    for call in (1, 2):
        writer.write(batch([ended(call, f"m{call}")]))
        assert writer.wait_until_written(PATIENCE_SECONDS)
        assert writer.wait_until_idle(PATIENCE_SECONDS)
    assert writer.close(PATIENCE_SECONDS)
    assert len(statuses(path)) == 2


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"since": 1e308}, 0),
        ({"since": -1e308}, 3),
        ({"since": 0}, 3),
        ({"afterId": 2**70}, 0),
        ({"afterId": -(2**70)}, 3),
        ({"afterId": 2**63 - 1}, 0),
        ({"since": 1e308, "afterId": 2**70}, 0),
    ],
)
def test_any_time_and_any_id_get_an_answer(
    daemon: Daemon, opened: ExitStack, suffix: str, asked: Json, expected: int
) -> None:
    peer = join_by(daemon, "unix", f"agent:asker{suffix}", opened)
    for _ in range(3):
        peer.answer_to(peer.send_message(f"agent:nobody{suffix}"))
    answer = peer.call("bus.log", {"to": f"agent:nobody{suffix}", **asked})
    assert len(answer["entries"]) == expected


@pytest.mark.parametrize("limit", [0, -1, 2**70])
def test_a_limit_out_of_bounds_is_refused(
    daemon: Daemon, opened: ExitStack, suffix: str, limit: int
) -> None:
    peer = join_by(daemon, "unix", f"agent:asker{suffix}", opened)
    assert error_of(peer, "bus.log", {"limit": limit})[0] == -32602


def test_an_id_used_160_000_times_is_traced_in_part_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    file = JournalFile(path, lambda: T0)
    file.write(batch([ended(call, "again", start=T0 + call) for call in range(USES)]))
    file.close()
    attempts, count = trace(path, "again")
    assert len(attempts) == 10_000
    assert count == USES
    assert len(tail(path, limit=5)) == 5


def test_a_trace_of_more_than_a_frame_says_how_many_attempts_are_left_out(
    daemon: Daemon, opened: ExitStack, suffix: str
) -> None:
    peer = join_by(daemon, "unix", f"agent:asker{suffix}", opened)
    uses = 6_000
    for _ in range(uses // 500):
        sent = [peer.send_message("agent:nobody", messageId=f"again{suffix}") for _ in range(500)]
        for number in sent:
            peer.answer_to(number)
    answer = peer.call("bus.trace", {"messageId": f"again{suffix}"})
    assert answer["attempts"]
    assert len(answer["attempts"]) + answer["moreAttempts"] == uses
