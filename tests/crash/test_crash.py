"""What `python -m tests.crash` does at full length, in a few seconds."""

from __future__ import annotations

from tests.crash.counting import run_counting
from tests.crash.faults import faults_at, run_faults
from tests.crash.kills import run_kills
from tests.crash.processes import Processes
from tests.crash.rolling import run_rolling
from tests.daemons import Loop


def test_nothing_is_lost_or_repeated_unflagged_when_the_bus_is_killed(
    loop: Loop, processes: Processes
) -> None:
    findings = run_kills(loop, 1, 6, processes)
    assert findings.answers["acked"]
    assert findings.repeated


def test_nothing_is_lost_when_the_bus_is_killed_at_a_write(processes: Processes) -> None:
    findings = run_faults("uvloop", 1, faults_at((1, 2, 4, 12)), processes)
    assert findings.messages


def test_a_worker_that_remembers_what_it_did_counts_each_message_once(processes: Processes) -> None:
    counted = run_counting("uvloop", 1, 2_000, 4, processes)
    assert (counted.messages, counted.total) == (counted.sent, counted.expected)


def test_durable_senders_do_not_notice_graceful_restarts(loop: Loop, processes: Processes) -> None:
    rolled = run_rolling(loop, 2, 2_000, is_durable=True, processes=processes)
    assert rolled.not_delivered == {}
    assert (rolled.lost, rolled.unflagged) == (0, 0)
