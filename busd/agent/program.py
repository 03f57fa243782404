"""A program that a worker runs: with everything it starts, for as long as it is wanted."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import TypeVar

import anyio
from anyio.abc import Process

from busd.agent.pipe import Pipe, PipeFrom, PipeTo
from busd.agent.turn import TurnFailed

P = TypeVar("P", bound=Pipe)
MAX_OUTPUT_BYTES = 1024 * 1024
_TERM_SECONDS = 1.0  # from asking it to end to killing it
_SHOWN_LINES = 5
_SHOWN_CHARACTERS = 1_000


class Program:
    """A running program, in a process group of its own."""

    def __init__(
        self, process: Process, stdin: PipeTo | None, stdout: PipeFrom, stderr: PipeFrom
    ) -> None:
        self._process = process
        self._stdin = stdin
        self.stdout = stdout
        self.complaints = Complaints(stderr)

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> None:
        """Wait until the program itself has ended; what it started may still run."""
        await self._process.wait()

    async def write(self, content: bytes) -> None:
        """Write to its stdin; a program that does not read it is not at fault."""
        if self._stdin is not None:
            await self._stdin.write(content)

    def end_input(self) -> None:
        if self._stdin is not None:
            self._stdin.close_near()

    async def end(self) -> None:
        """End what is left of the group: asked first, killed after a second."""
        if self._process.returncode is None:
            self._signal(signal.SIGTERM)
            with anyio.move_on_after(_TERM_SECONDS):
                await self._process.wait()
        self.kill()
        await self._process.wait()

    def kill(self) -> None:
        """Kill the program and what it started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def failure(self) -> TurnFailed:
        """Return what to tell the user of how it ended."""
        said = self.complaints.last_lines()
        how = how_ended(self.exit_code)
        return TurnFailed(f"{how}: {said}" if said else how, code="exit_code")


class Complaints:
    """A program's stderr: all of it goes to our own, its last lines to the user."""

    def __init__(self, stderr: PipeFrom) -> None:
        self._stderr = stderr
        self._lines: deque[str] = deque(maxlen=_SHOWN_LINES)
        self._rest = b""

    async def read(self) -> None:
        """Read until there is nothing more to come."""
        while chunk := await self._stderr.read():
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
            self._note(chunk)

    def _note(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_SHOWN_CHARACTERS:]
        self._lines.extend(_shown(line) for line in lines if line.strip())

    def last_lines(self) -> str:
        lines = [*self._lines, _shown(self._rest)]
        text = "\n".join([line for line in lines if line.strip()][-_SHOWN_LINES:])
        return text[-_SHOWN_CHARACTERS:]


def _shown(line: bytes) -> str:
    return line[-_SHOWN_CHARACTERS:].decode(errors="replace").rstrip()


@asynccontextmanager
async def open_program(
    command: Sequence[str], cwd: Path, environment: dict[str, str], *, has_stdin: bool
) -> AsyncIterator[Program]:
    """Start a program; nothing of its group outlives the block. Raise TurnFailed if it cannot."""
    with contextlib.ExitStack() as stack:
        try:
            stdin = _open(PipeTo(), stack) if has_stdin else None
            stdout, stderr = _open(PipeFrom(), stack), _open(PipeFrom(), stack)
        except OSError as problem:
            raise TurnFailed(f"no pipe to the program: {problem.strerror}") from None
        process = await _start(
            command, cwd, environment, stdin.far if stdin else DEVNULL, stdout.far, stderr.far
        )
        for pipe in (stdin, stdout, stderr):
            if pipe is not None:
                pipe.close_far()
        program = Program(process, stdin, stdout, stderr)
        try:
            yield program
        finally:
            with anyio.CancelScope(shield=True):
                await program.end()


def _open(pipe: P, stack: contextlib.ExitStack) -> P:
    stack.callback(pipe.close)
    return pipe


async def _start(
    command: Sequence[str],
    cwd: Path,
    environment: dict[str, str],
    stdin: int,
    stdout: int,
    stderr: int,
) -> Process:
    if any("\0" in word for word in command):  # one of the loops would cut it off there
        raise TurnFailed("a message with a NUL in it cannot be an argument", code="not_started")
    plain = {name: value.replace("\0", "") for name, value in environment.items()}
    full = os.environ | plain
    # Looked up here: a folder of the PATH that may not be looked into would hide the real reason.
    found = shutil.which(command[0], path=full.get("PATH")) if "/" not in command[0] else None
    try:
        return await anyio.open_process(
            [found or command[0], *command[1:]],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=full,
            start_new_session=True,
        )
    except OSError as problem:
        reason = _why_not_started(command[0], cwd, problem)
        raise TurnFailed(reason, code="not_started") from None


def _why_not_started(name: str, cwd: Path, problem: OSError) -> str:
    if problem.errno == errno.E2BIG:
        return "the message is too long to be an argument"
    if not cwd.is_dir():
        return f"the workspace is no folder: {cwd}"
    if isinstance(problem, FileNotFoundError):
        return f"no such program: {name}"
    return f"{name} cannot be started: {problem.strerror}"


def how_ended(code: int | None) -> str:
    """Describe how a program ended."""
    if code is None:
        return "the program has closed its output"
    if code >= 0:
        return f"the program ended with exit code {code}"
    try:
        return f"the program was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"the program was killed by signal {-code}"
