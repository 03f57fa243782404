"""Workers that print into the journal, where a journald runs: what they said is read from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd.supervise.logs import LogLine, SystemdJournal, parse_entry
from busd.supervise.service_manager import ServiceManager
from busd.supervise.systemd import SystemdSpawner
from busd.supervise.worker import Report, SupervisorSettings
from tests.supervise.conftest import MakeLaunch
from tests.supervise.processes import Told, patience
from tests.supervise.test_life import STAYS, all_reports
from tests.systemd.managers import NoManager, UserManager, open_journal, open_user_manager

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def manager() -> Iterator[UserManager]:
    """A user's manager beside a journald."""
    with ExitStack() as stack:
        try:
            manager = stack.enter_context(open_user_manager())
            stack.enter_context(open_journal(manager))
        except NoManager as reason:
            pytest.skip(str(reason))
        yield manager


@pytest.fixture
def journal(manager: UserManager) -> SystemdJournal:
    return SystemdJournal(run_by=manager.command(), environment=manager.environment())


MakeSpawner = Callable[..., SystemdSpawner]


@pytest.fixture
def make_spawner(manager: UserManager, journal: SystemdJournal, state: Path) -> MakeSpawner:
    """Make spawners for one state directory."""

    def make(**settings: Any) -> SystemdSpawner:  # Any: whatever the settings are
        service_manager = ServiceManager("user", runtime=manager.runtime)
        chosen = SupervisorSettings(**settings)
        return SystemdSpawner(
            state=state, settings=chosen, manager=service_manager, journal=journal
        )

    return make


@pytest.fixture
def spawner(make_spawner: MakeSpawner) -> SystemdSpawner:
    return make_spawner()


async def lines_of(
    journal: SystemdJournal, unit: str, count: int, after: str | None = None
) -> list[LogLine]:
    """Read until there are so many lines: journald takes its time."""
    with patience():
        while len(found := await journal.read(unit, count, after)) < count:
            await anyio.sleep(0.02)
        return found
    raise AssertionError("no such lines")


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


async def test_the_journal_is_used_where_it_can_be_read(journal: SystemdJournal) -> None:
    assert await journal.is_usable()


async def test_a_journal_that_cannot_be_read_is_not_used() -> None:
    assert not await SystemdJournal(run_by=["false"]).is_usable()
    assert not await SystemdJournal(run_by=["/no/such/program"]).is_usable()


async def test_a_failed_worker_is_reported_with_its_last_lines_of_the_journal(
    spawner: SystemdSpawner, launch: MakeLaunch
) -> None:
    wanted = launch("echo one >&2; echo two; exit 3", restarts=0)
    async with spawner:
        worker = await spawner.start(wanted)
        assert worker.log == f"journal, unit {worker.unit}"
        exited, failed = await all_reports(worker)
    assert exited == Report("exited", "exit code 3", ("one", "two"))
    assert failed == Report("failed", "exit code 3", ("one", "two"))
    assert not (wanted.directory / "logs").exists()


async def test_reading_goes_on_after_a_line_that_was_seen(
    spawner: SystemdSpawner, launch: MakeLaunch, told: Told, journal: SystemdJournal
) -> None:
    script = f"for n in 1 2 3 4 5; do echo line $n; done; {STAYS}"
    async with spawner:
        worker = await spawner.start(launch(script))
        await told.next_pid()
        lines = await lines_of(journal, worker.unit, 5)
        assert texts(lines) == [f"line {number}" for number in range(1, 6)]
        assert texts(await journal.read(worker.unit, 2)) == ["line 4", "line 5"]
        assert await journal.read(worker.unit, 2, lines[1].id) == lines[2:4]
        assert await journal.read(worker.unit, 10, lines[-1].id) == []
        of_a_file = "123-45"
        assert await journal.read(worker.unit, 10, of_a_file) == lines
    assert await journal.read(worker.unit, 10) == lines


async def test_each_worker_has_its_own_lines_and_odd_ones_come_whole(
    spawner: SystemdSpawner, launch: MakeLaunch, told: Told, journal: SystemdJournal
) -> None:
    odd = f"printf 'a\\tb\\033[1m \\377 end\\n'; head -c 9000 /dev/zero | tr '\\0' x; echo; {STAYS}"
    async with spawner:
        other = await spawner.start(launch(f"echo mine; {STAYS}", "agent:other"))
        worker = await spawner.start(launch(odd))
        assert texts(await lines_of(journal, other.unit, 1)) == ["mine"]
        assert texts(await lines_of(journal, worker.unit, 2)) == [
            "a\tb\x1b[1m \N{REPLACEMENT CHARACTER} end",
            "x" * 4_000,
        ]
        for _ in range(2):
            await told.next_pid()


async def test_a_worker_that_prints_without_end_leaves_the_rest_as_it_is(
    spawner: SystemdSpawner, launch: MakeLaunch, told: Told, journal: SystemdJournal
) -> None:
    chatter = launch('echo $$ > "$TOLD"; exec yes "a line of words" >&2')
    async with spawner:
        worker = await spawner.start(chatter)
        await told.next_pid()
        lines = await lines_of(journal, worker.unit, 1_000)
        assert set(texts(lines)) == {"a line of words"}
        await worker.stop()
    assert not list(chatter.directory.iterdir())


async def test_workers_that_are_kept_print_on_where_they_did(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, journal: SystemdJournal
) -> None:
    async with make_spawner(when_bus_stops="keep") as spawner:
        unit = (await spawner.start(launch(f"echo words; {STAYS}"))).unit
        await told.next_pid()
        await lines_of(journal, unit, 1)
    async with make_spawner(when_bus_stops="keep") as spawner:
        worker = await spawner.adopt("agent:w", unit)
        assert worker is not None
        assert worker.log == f"journal, unit {unit}"
        assert await worker.last_lines() == ["words"]
        await worker.stop()


def test_a_line_without_words_is_empty() -> None:
    assert parse_entry(b'{"__CURSOR":"s=1;i=2","MESSAGE":null}') == LogLine("s=1;i=2", "")
    assert parse_entry(b'{"__CURSOR":"s=1;i=2"}') == LogLine("s=1;i=2", "")
    assert parse_entry(b'{"__CURSOR":"s=1;i=2","MESSAGE":[104,105]}') == LogLine("s=1;i=2", "hi")
