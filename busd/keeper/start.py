"""Start a worker's process: its session, its limits, and readable errors if that fails."""

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

_OOM_SCORE = b"500"  # when the host runs out of memory, workers are killed before the bus


class CannotStart(Exception):
    """A program cannot be started; the message is the reason."""


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
        return subprocess.Popen(  # noqa: S603 - configured by the operator
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
    """Raise our limit of open files (two pipes per worker); return the limit for workers."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (usual[1], usual[1]))
    return usual


def lower(kind: int, value: int | None) -> None:
    """Set a limit, unless a lower one is set already."""
    if value is None:
        return
    _, hard = resource.getrlimit(kind)
    least = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(kind, (least, least))
    except (OSError, ValueError):
        pass  # not possible in this sandbox; the effective limit is read afterwards


def _tasks_limit(tasks_max: int | None) -> int | None:
    """Return the process limit; the kernel counts all of a user's threads, but never root's."""
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
        pass  # not possible in this sandbox; the limits apply nevertheless


def limits_of(pid: int, launch: Launch) -> dict[str, str]:
    """Return which of the requested limits are in force, as reported by the kernel."""
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
    """Return a readable reason why a program could not be started."""
    if not launch.command or not launch.command[0]:
        return "no program is named"
    program = launch.command[0]
    number = problem.errno if isinstance(problem, OSError) else None
    path = launch.environment.get("PATH", os.defpath)
    # An unreadable folder of the PATH causes EACCES, too.
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
