"""The daemon's connection to the keeper: requests out, answers and reports in."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from subprocess import DEVNULL, PIPE

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

import busd.keeper
from busd.keeper.daemon_side import MAX_LINE_BYTES
from busd.keeper.process import SOCKET
from busd.supervise.worker import Report, SpawnFailed
from busd.unix_peer import read_unix_peer

# As `python -m busd.keeper`, but isolated: without the site packages, and what they may run.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from busd.keeper.__main__ import main; main()"
)
_ROOT = str(Path(busd.keeper.__file__).absolute().parents[2])
_START_SECONDS = 20.0
# All that a keeper needs of our environment; the rest may be secrets, which workers could read.
_INHERITED = ("PATH", "LANG", "LD_LIBRARY_PATH")


class KeeperAnswer(msgspec.Struct, frozen=True):
    """What the keeper sends: the answer to a request, or a report of a worker."""

    answer: int | None = None
    error: str | None = None
    is_ending: bool = False
    pid: int | None = None
    init: int | None = None  # of the worker's init process, below which all of its processes are
    limits: dict[str, str] = {}
    directory: str = msgspec.field(name="workspace", default="")
    stop_seconds: float = 0.0
    worker: str = ""
    kind: str = ""
    reason: str = ""
    last_lines: tuple[str, ...] = ()


class KeeperGone(Exception):
    """The keeper has ended, or was never there."""


class KeeperLink:
    """A living keeper."""

    def __init__(self, stream: SocketStream, pid: int) -> None:
        self.pid = pid
        self.ended = anyio.Event()
        self.refusal = ""  # why it does not serve us
        self.on_report: Callable[[str, Report, int | None], None] = lambda *_: None
        self._stream = stream
        self._numbers = count(1)
        self._pending: dict[int, Callable[[KeeperAnswer], None]] = {}
        self._is_sending = anyio.Lock()

    async def ask(
        self,
        request: str,
        on_answer: Callable[[KeeperAnswer], None] | None = None,
        **members: object,
    ) -> KeeperAnswer:
        """Send a request and wait for its answer; `on_answer` gets it before any later report."""
        number = next(self._numbers)
        is_answered = anyio.Event()
        answers: list[KeeperAnswer] = []

        def take(answer: KeeperAnswer) -> None:
            answers.append(answer)
            if on_answer is not None:
                on_answer(answer)
            is_answered.set()

        self._pending[number] = take
        try:
            await self.send(request, number=number, **members)
            async with anyio.create_task_group() as either:
                either.start_soon(self._wait_for_end, either.cancel_scope)
                await is_answered.wait()
                either.cancel_scope.cancel()
        finally:
            self._pending.pop(number, None)
        if not answers:
            raise KeeperGone
        return answers[0]

    async def _wait_for_end(self, scope: anyio.CancelScope) -> None:
        await self.ended.wait()
        scope.cancel()

    async def send(self, request: str, **members: object) -> None:
        """Send a request that is not answered."""
        line = msgspec.json.encode({"order": request, **members}) + b"\n"
        try:
            async with self._is_sending:
                # Shielded: half a line would spoil all that follow.
                with anyio.move_on_after(_START_SECONDS, shield=True) as patience:
                    await self._stream.send(line)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise KeeperGone from None
        if patience.cancelled_caught:
            self.kill()
            raise KeeperGone

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Receive what the keeper sends until it ends."""
        task_status.started()
        lines = BufferedByteReceiveStream(self._stream)
        try:
            while True:
                line = await lines.receive_until(b"\n", MAX_LINE_BYTES)
                self._receive(msgspec.json.decode(line, type=KeeperAnswer))
        except (
            anyio.EndOfStream,
            anyio.IncompleteRead,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            anyio.DelimiterNotFound,
            msgspec.MsgspecError,
        ):
            pass
        finally:
            self.ended.set()
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()

    def _receive(self, message: KeeperAnswer) -> None:
        if message.kind:
            report = msgspec.convert(
                {
                    "kind": message.kind,
                    "reason": message.reason,
                    "last_lines": message.last_lines,
                    "pid": message.pid,
                },
                Report,
            )
            self.on_report(message.worker, report, message.init)
        elif message.answer in self._pending:
            self._pending[message.answer](message)
        elif message.error is not None:
            self.refusal = message.error

    def kill(self) -> None:
        """End a keeper that does not listen; the kernel ends its workers."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    async def aclose(self) -> None:
        await self._stream.aclose()


async def connect_keeper(state: Path) -> KeeperLink:
    """Connect to the keeper of a state directory; raise KeeperGone if there is none."""
    folder = os.open(state, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Through the folder's descriptor: the path of a socket has at most 107 bytes.
        stream = await anyio.connect_unix(f"/proc/self/fd/{folder}/{SOCKET}")
    except OSError:
        raise KeeperGone from None
    finally:
        os.close(folder)
    keeper = read_unix_peer(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 - no SQL here
    if keeper.uid != os.geteuid():
        await stream.aclose()
        raise SpawnFailed(f"{state / SOCKET} is of another user: {keeper.uid}")
    return KeeperLink(stream, keeper.pid)


async def start_keeper(state: Path) -> None:
    """Start a keeper; returns once it listens."""
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT, str(state)]
    done = None
    with anyio.move_on_after(_START_SECONDS):
        done = await anyio.run_process(
            command,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            check=False,
            cwd="/",
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        )
    if done is None:
        raise SpawnFailed(
            f"the keeper of the workers did not start in {math.ceil(_START_SECONDS)} s"
        )
    if done.returncode != 0:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
        raise SpawnFailed(f"the keeper of the workers did not start: {last[:200]}")
