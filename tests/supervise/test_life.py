"""A worker's life, by both spawners: started, ended, started again, given up, stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from busd.supervise.worker import Report, SpawnFailed, SupervisedProcess
from tests.supervise.conftest import MakeLaunch, MakeSpawner
from tests.supervise.processes import Told, is_alive, patience

pytestmark = pytest.mark.anyio

STAYS = 'echo $$ > "$TOLD"; exec sleep 1000'


async def all_reports(worker: SupervisedProcess) -> list[Report]:
    with patience():
        return [report async for report in worker.reports()]
    raise AssertionError("no last report")


async def next_report(worker: SupervisedProcess) -> Report:
    with patience():
        async for report in worker.reports():
            return report
    raise AssertionError("no report")


async def test_a_worker_is_started_and_its_pid_is_known(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(STAYS))
        assert await told.next_pid() == worker.pid
        assert worker.name == "agent:w"
    assert not told.marked()


async def test_a_worker_runs_in_its_workspace_and_in_a_session_of_its_own(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(f'pwd > "$TOLD"; {STAYS}'))
        assert Path(await told.next_line()) == launch("").directory
        pid = await told.next_pid()
        assert worker.pid == os.getsid(pid) == pid != os.getsid(0)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["no-such-program"], "no such program: no-such-program"),
        (["/no/such/program", "x"], "no such program: /no/such/program"),
        (["/etc/passwd"], "not allowed to run: /etc/passwd"),
        ([], "no program is named"),
    ],
)
async def test_a_program_that_is_not_there_is_named(
    make_spawner: MakeSpawner, launch: MakeLaunch, command: list[str], said: str
) -> None:
    async with make_spawner() as spawner:
        with pytest.raises(SpawnFailed) as problem:
            await spawner.start(launch("", command=command))
    assert str(problem.value) == said


async def test_a_workspace_that_is_not_there_is_named(
    make_spawner: MakeSpawner, launch: MakeLaunch
) -> None:
    wanted = launch("true")
    wanted.directory.rmdir()
    async with make_spawner() as spawner:
        with pytest.raises(SpawnFailed) as problem:
            await spawner.start(wanted)
    assert str(problem.value) == f"no such workspace: {wanted.directory}"


async def test_a_second_worker_of_the_same_name_is_refused(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        await spawner.start(launch(STAYS))
        with pytest.raises(SpawnFailed, match=r"^agent:w has been started already$"):
            await spawner.start(launch(STAYS))


async def test_a_worker_that_fails_at_once_is_reported_with_its_code_and_last_lines(
    make_spawner: MakeSpawner, launch: MakeLaunch
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch("echo one >&2; echo two >&2; exit 3", restarts=0))
        exited, failed = await all_reports(worker)
        assert await worker.last_lines() == ["one", "two"]
        assert worker.pid is None
    assert exited == Report("exited", "exit code 3", ("one", "two"))
    assert failed == Report("failed", "exit code 3", ("one", "two"))


async def test_a_worker_with_a_bad_configuration_is_not_started_again(
    make_spawner: MakeSpawner, launch: MakeLaunch
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch("echo no model >&2; exit 78", restart_seconds=0.01))
        reports = await all_reports(worker)
    reason = "exit code 78, bad configuration"
    assert reports == [Report(kind, reason, ("no model",)) for kind in ("exited", "failed")]


async def test_a_worker_that_crashes_in_a_loop_is_started_again_and_then_given_up(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    crash = Report("exited", "killed by SIGKILL")
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(STAYS, restarts=2, restart_seconds=0.1))
        pid = await told.next_pid()
        for _ in range(2):
            os.kill(pid, signal.SIGKILL)
            pid = await told.next_pid()
            assert await next_report(worker) == crash
            assert await next_report(worker) == Report("restarted", pid=pid)
        os.kill(pid, signal.SIGKILL)
        assert await all_reports(worker) == [crash, Report("failed", "killed by SIGKILL")]


async def test_a_worker_that_is_killed_is_started_again(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(STAYS, restart_seconds=0.01))
        os.kill(await told.next_pid(), signal.SIGKILL)
        pid = await told.next_pid()
        assert await next_report(worker) == Report("exited", "killed by SIGKILL")
        assert await next_report(worker) == Report("restarted", pid=pid)
        assert worker.pid == pid


async def test_a_worker_that_was_asked_to_end_by_a_stranger_is_started_again(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        await spawner.start(launch(STAYS, restart_seconds=0.01))
        os.kill(await told.next_pid(), signal.SIGTERM)
        assert is_alive(await told.next_pid())


async def test_a_worker_that_ends_well_is_not_started_again(
    make_spawner: MakeSpawner, launch: MakeLaunch
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch("exit 0"))
        assert await all_reports(worker) == [Report("stopped", "exit code 0")]


async def test_a_stopped_worker_is_gone_and_can_be_started_anew(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(STAYS))
        first = await told.next_pid()
        await worker.stop()
        assert not is_alive(first)
        assert [report.kind for report in await all_reports(worker)] == ["stopped"]
        await worker.stop()
        await spawner.start(launch(STAYS))
        assert await told.next_pid() != first


async def test_a_worker_that_waits_for_its_next_start_can_be_stopped(
    make_spawner: MakeSpawner, launch: MakeLaunch
) -> None:
    async with make_spawner() as spawner:
        worker = await spawner.start(launch("exit 1", restart_seconds=20.0))
        assert (await next_report(worker)).kind == "exited"
        await worker.stop()
        assert (await all_reports(worker))[-1].kind == "stopped"


async def test_a_worker_that_will_not_end_is_killed(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    script = "trap '' TERM; echo $$ > \"$TOLD\"; while :; do sleep 1000; done"
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(script, stop_seconds=0.3))
        pid = await told.next_pid()
        await worker.stop()
        assert not is_alive(pid)
        assert not told.marked()


async def test_a_hundred_workers_run_at_once(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        workers: list[SupervisedProcess] = []

        async def start(number: int) -> None:
            workers.append(await spawner.start(launch(STAYS, f"agent:w{number}")))

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(start, number)
        said = {await told.next_pid() for _ in range(100)}
        assert said == {worker.pid for worker in workers}
        await workers[0].stop()
        assert len(told.marked()) == 99
    assert not told.marked()
