"""Starting a worker's process: its session, its limits, and plain words for why it cannot be."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from pathlib import Path

from busd.keeper.control_group import ControlGroup
from busd.keeper.launch import Launch
from busd.keeper.tree import die_with_parent, living

_OOM_SCORE = b"500"  # when the host runs out of memory, a worker goes before the bus


class CannotStart(Exception):
    """A program cannot be started; says why."""


def start_process(
    launch: Launch,
    group: ControlGroup,
    environment: dict[str, str],
    usual_files: tuple[int, int],
    output: int,
    errors: int,
) -> subprocess.Popen[bytes]:
    """Start the program in a session and a group of its own, within its limits."""
    parent = os.getpid()
    tasks = _tasks_limit(launch.tasks_max)

    def prepare() -> None:
        die_with_parent(parent)
        group.enter()
        os.umask(0o077)
        resource.setrlimit(resource.RLIMIT_NOFILE, usual_files)
        lower(resource.RLIMIT_CORE, 0)
        lower(resource.RLIMIT_DATA, launch.memory_max_bytes)
        lower(resource.RLIMIT_FSIZE, launch.file_max_bytes)
        lower(resource.RLIMIT_NPROC, tasks)
        _expect_to_go_first()

    try:
        return subprocess.Popen(  # noqa: S603 - the operator says what
            launch.command,
            cwd=launch.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=prepare,  # safe: there is one thread
        )
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as problem:
        raise CannotStart(why_not(problem, launch)) from None


def allow_many_files() -> tuple[int, int]:
    """Let this process have two pipes for each worker; return the limit that workers get."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (usual[1], usual[1]))
    return usual


def lower(kind: int, value: int | None) -> None:
    """Set a limit, unless a lower one is there already."""
    if value is None:
        return
    _, hard = resource.getrlimit(kind)
    least = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(kind, (least, least))
    except (OSError, ValueError):
        pass  # a sandbox without it; what is in force is read afterwards


def _tasks_limit(tasks_max: int | None) -> int | None:
    """Return the limit of processes; the kernel counts all of the user's, and root's never."""
    if tasks_max is None or os.geteuid() == 0:
        return None
    uid = os.getuid()
    own = (process.pid for process in living())
    return tasks_max + sum(_threads_of(pid) for pid in own if _owner(pid) == uid)


def _owner(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def _threads_of(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return 0


def _expect_to_go_first() -> None:
    try:
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(file, _OOM_SCORE)
        os.close(file)
    except OSError:
        pass  # a sandbox without it; the limits hold all the same


def limits_of(pid: int, launch: Launch) -> dict[str, str]:
    """Ask the kernel which of the wanted limits are in force."""
    limits = {}
    if launch.memory_max_bytes is not None:
        limits["memory_max_bytes"] = _in_force(pid, resource.RLIMIT_DATA, "for each process")
    if launch.file_max_bytes is not None:
        limits["file_max_bytes"] = _in_force(pid, resource.RLIMIT_FSIZE, "for each file")
    if launch.tasks_max is not None:
        limits["tasks_max"] = (
            "not in force: root has no such limit"
            if os.geteuid() == 0
            else _in_force(pid, resource.RLIMIT_NPROC, "for all of the user together")
        )
    if launch.cpu_percent is not None:
        limits["cpu_percent"] = "not in force: needs systemd"
    return limits


def _in_force(pid: int, kind: int, scope: str) -> str:
    try:
        soft, _ = resource.prlimit(pid, kind)
    except (OSError, ValueError):
        return "unknown: the worker has ended"
    return "not in force" if soft == resource.RLIM_INFINITY else f"{soft} {scope}"


def why_not(problem: Exception, launch: Launch) -> str:
    """Return why a program could not be started, for whoever asked."""
    if not launch.command or not launch.command[0]:
        return "no program is named"
    program = launch.command[0]
    number = problem.errno if isinstance(problem, OSError) else None
    path = launch.environment.get("PATH", os.defpath)
    # A folder of the PATH that may not be looked into gives EACCES, too.
    is_nowhere = "/" not in program and shutil.which(program, os.F_OK, path) is None
    if number in (errno.ENOENT, errno.ENOTDIR) or (number == errno.EACCES and is_nowhere):
        if not launch.directory.is_dir():
            return f"no such workspace: {launch.directory}"
        is_there = shutil.which(program, path=path) is not None
        return f"no such {'interpreter for' if is_there else 'program'}: {program}"
    if number == errno.EACCES:
        return f"not allowed to run: {program}"
    if number == errno.ENOEXEC:
        return f"not a program: {program}"
    if isinstance(problem, OSError):
        return f"cannot run {program}: {problem.strerror}"
    if isinstance(problem, ValueError):
        return f"cannot run {program!r}: a NUL or '=' where none can be"
    return f"cannot run {program}: its limits cannot be set"
