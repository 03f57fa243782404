"""What a worker may take, what it may print, and what it is told in secret."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from busd.keeper.log import MAX_FILE_BYTES
from busd.supervise.service_manager import ServiceManager
from busd.supervise.systemd import SystemdSpawner
from busd.supervise.worker import SpawnFailed, SupervisorSettings
from tests.supervise.conftest import MakeLaunch, MakeSpawner
from tests.supervise.processes import Told, is_alive, patience
from tests.supervise.test_life import STAYS, all_reports
from tests.systemd.managers import NoManager, UserManager, has_own_mounts, open_user_manager

pytestmark = pytest.mark.anyio

MEGABYTE = 1024 * 1024
GREEDY = """
import os, sys
taken = []
try:
    while True:
        taken.append(bytearray(b"x" * (8 * 1024 * 1024)))
except MemoryError:
    del taken
    print("no more memory", file=sys.stderr)
    sys.exit(9)
"""


def kernel_limits(pid: int | None) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return {line[:26].strip(): line[26:].split()[0] for line in lines}


def what_all_can_read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_worker_that_takes_too_much_memory_fails_and_nobody_else_does(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        other = await spawner.start(launch(STAYS, "agent:other"))
        greedy = launch(
            "",
            command=[sys.executable, "-I", "-S", "-c", GREEDY],
            memory_max_bytes=96 * MEGABYTE,
            restarts=0,
        )
        worker = await spawner.start(greedy)
        failed = (await all_reports(worker))[-1]
        assert failed.kind == "failed"
        assert failed.reason in ("exit code 9", "out of memory", "killed by SIGKILL")
        assert other.pid is not None
        assert is_alive(other.pid)


async def test_a_worker_that_fills_the_disk_meets_its_own_limit(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    async with make_spawner() as spawner:
        other = await spawner.start(launch(STAYS, "agent:other"))
        filling = launch(
            "",
            command=["/bin/sh", "-c", "exec cat /dev/zero > data.bin"],
            file_max_bytes=2 * MEGABYTE,
            restarts=0,
        )
        worker = await spawner.start(filling)
        failed = (await all_reports(worker))[-1]
        assert (failed.kind, failed.reason) == ("failed", "killed by SIGXFSZ")
        assert (filling.directory / "data.bin").stat().st_size == 2 * MEGABYTE
        assert other.pid is not None
        assert is_alive(other.pid)


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_the_limits_in_force_are_what_the_kernel_says(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    wanted = launch(
        STAYS,
        memory_max_bytes=512 * MEGABYTE,
        file_max_bytes=MEGABYTE,
        cpu_percent=50,
        tasks_max=20,
    )
    async with make_spawner() as spawner:
        worker = await spawner.start(wanted)
        limits = dict(worker.limits)
        tasks = limits.pop("tasks_max")
        values = kernel_limits(worker.pid)
    assert limits == {
        "memory_max_bytes": f"{512 * MEGABYTE} for each process",
        "file_max_bytes": f"{MEGABYTE} for each file",
        "cpu_percent": "not in force: needs systemd",
    }
    if os.geteuid() == 0:
        assert tasks == "not in force: root has no such limit"
    else:
        assert tasks.endswith(" for all of the user together")
    assert values["Max data size"] == str(512 * MEGABYTE)
    assert values["Max core file size"] == "0"


@pytest.mark.parametrize("kind", ["systemd"])
async def test_the_limits_of_a_unit_are_read_from_its_group_or_said_not_to_be_in_force(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, user_manager: UserManager
) -> None:
    wanted = launch(STAYS, memory_max_bytes=512 * MEGABYTE, cpu_percent=50, tasks_max=20)
    async with make_spawner(tasks_max=400, memory_max_bytes=2048 * MEGABYTE) as spawner:
        worker = await spawner.start(wanted)
        each = f"{512 * MEGABYTE} for each process"
        assert worker.limits["memory_max_bytes"] in (str(512 * MEGABYTE), each)
        nothing = "not in force: the manager may not limit it"
        assert worker.limits["cpu_percent"] in ("50", nothing)
        assert worker.limits["tasks_max"] in ("20", nothing)
        assert user_manager.show(worker.unit, "TasksMax") == "20"
        assert user_manager.show(worker.unit, "Slice") == "busd-agents.slice"
        assert user_manager.show("busd-agents.slice", "TasksMax") == "400"
        assert user_manager.show("busd-agents.slice", "MemoryMax") == str(2048 * MEGABYTE)
    async with make_spawner():
        assert user_manager.show("busd-agents.slice", "TasksMax") == "infinity"


async def test_a_worker_that_prints_without_end_does_not_fill_the_disk(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told
) -> None:
    chatter = launch('echo $$ > "$TOLD"; exec yes "a line of words" >&2')
    logs = chatter.directory / "logs"
    async with make_spawner() as spawner:
        worker = await spawner.start(chatter)
        await told.next_pid()
        with patience():
            # Twice full is once moved; how soon that is depends on the disk only.
            while not (logs / "worker.log.1").exists():
                await anyio.sleep(0.01)
        await worker.stop()
        lines = await worker.last_lines(5)
        assert "a line of words" in lines
    older = (logs / "worker.log.1").stat()
    assert older.st_size <= MAX_FILE_BYTES
    assert older.st_mode & 0o077 == 0
    assert sorted(path.name for path in logs.iterdir()) == ["worker.log", "worker.log.1"]


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_the_logs_of_a_chatty_worker_have_two_files_of_one_mebibyte(
    make_spawner: MakeSpawner, launch: MakeLaunch
) -> None:
    chatter = launch("head -c 3000000 /dev/zero | tr '\\0' 'x' | fold; exit 0")
    async with make_spawner() as spawner:
        await all_reports(await spawner.start(chatter))
    sizes = [path.stat().st_size for path in (chatter.directory / "logs").iterdir()]
    assert len(sizes) == 2
    assert all(size <= MAX_FILE_BYTES for size in sizes)


@pytest.mark.parametrize("kind", ["subprocess"])
async def test_a_log_that_the_worker_made_a_link_is_not_followed(
    make_spawner: MakeSpawner, launch: MakeLaunch, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    trick = f'mkdir logs; ln -s "{target}" logs/worker.log; echo words >&2; exit 3'
    async with make_spawner() as spawner:
        worker = await spawner.start(launch(trick, restarts=0))
        failed = (await all_reports(worker))[-1]
        assert await worker.last_lines() == []
    assert failed.last_lines == ("words",)
    assert target.read_text() == "mine"


async def test_a_secret_reaches_the_worker_and_nobody_else(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, tmp_path: Path, state: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush-hush\n")
    script = f'cat "$CREDENTIALS_DIRECTORY/key" > "$TOLD"; {STAYS}'
    wanted = launch(script, credentials={"key": str(secret)})
    async with make_spawner() as spawner:
        await spawner.start(wanted)
        assert await told.next_line() == "hush-hush"
        pid = await told.next_pid()
        for name in ("cmdline", "environ"):
            assert b"hush-hush" not in what_all_can_read(pid, name)
        assert all(path.stat().st_mode & 0o077 == 0 for path in files_of(state))
    assert not [path for path in files_of(state) if b"hush-hush" in path.read_bytes()]


async def test_a_secret_that_is_not_there_is_named(
    make_spawner: MakeSpawner, launch: MakeLaunch
) -> None:
    async with make_spawner() as spawner:
        with pytest.raises(SpawnFailed) as problem:
            await spawner.start(launch(STAYS, credentials={"key": "/no/such/file"}))
    assert str(problem.value) == "credential key: /no/such/file: No such file or directory"


@pytest.mark.skipif(not has_own_mounts(), reason="only root can take a manager's mounts")
async def test_a_secret_that_systemd_does_not_bring_is_said(
    launch: MakeLaunch, state: Path, tmp_path: Path
) -> None:
    """Without shared mounts a manager's units see an empty folder, and nobody says so."""
    secret = tmp_path / "secret"
    secret.write_text("hush-hush\n")
    with ExitStack() as stack:
        try:
            manager = stack.enter_context(open_user_manager(is_shared=False))
        except NoManager as reason:
            pytest.skip(str(reason))
        service_manager = ServiceManager("user", runtime=manager.runtime)
        settings = SupervisorSettings()
        async with SystemdSpawner(
            state=state, settings=settings, manager=service_manager
        ) as spawner:
            with pytest.raises(SpawnFailed) as problem:
                await spawner.start(launch(STAYS, credentials={"key": str(secret)}))
    assert str(problem.value) == (
        "systemd did not bring its credentials to it: key; the spawner `subprocess` would"
    )


async def test_a_worker_gets_the_words_of_its_environment_as_they_are(
    make_spawner: MakeSpawner, launch: MakeLaunch, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSD_SECRET_OF_THE_DAEMON", "hush")
    odd = "two words, \"quoted\" 'twice', $HOME %n `x` \\ and \t more"
    script = 'printf "%s\\n%s\\n" "$ODD" "$1" > "$TOLD"; env | grep -c OF_THE_DAEMON > "$TOLD"'
    command = ["sh", "-c", f"{script}; {STAYS}", "sh", odd]
    async with make_spawner() as spawner:
        await spawner.start(launch("", command=command, environment={"ODD": odd}))
        assert await told.next_line() == odd
        assert await told.next_line() == odd
        assert await told.next_line() == "0"
        await told.next_pid()


async def test_a_file_that_is_no_program_is_named(
    make_spawner: MakeSpawner, launch: MakeLaunch, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"\x00\x01 words")
    text.chmod(0o700)
    async with make_spawner() as spawner:
        with pytest.raises(SpawnFailed) as problem:
            await spawner.start(launch("", command=[str(text)]))
    assert str(problem.value) == f"not a program: {text}"
