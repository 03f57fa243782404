"""What a supervised process has printed: lines with ids, so that reading can go on after one.

It is in the files of its directory or, where journald runs and systemd supervises it, in the
journal. There its lines are found by the identifier that its unit gives them, and by the user. The
unit itself would be a worse key: of a user's units journald knows it only by their group.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from busd.keeper.folders import open_file, open_folder

_FILES = ("worker.log.1", "worker.log")  # older, newer
_MAX_FILE_BYTES = 1024 * 1024  # read of each
_MAX_CHARACTERS = 4_000  # of a line
IN_JOURNAL = "journal, unit "  # how the place of a log begins that is here
_SOCKET = "/run/systemd/journal/stdout"
_READ_SECONDS = 10.0
_PROBE_SECONDS = 3.0
_PROBE_PAUSE_SECONDS = 0.05
_LATE_SECONDS = 0.1
_MAX_READERS = 4  # at a time
_MAX_LINE_BYTES = 1024 * 1024  # journald itself cuts a line at 48 KiB, if not told otherwise
_MAX_BYTES = 8 * 1024 * 1024
_CURSOR = re.compile(r"s=[0-9a-f]+;[0-9a-z=;]+")


class LogLine(msgspec.Struct):
    id: str
    text: str


class LogReader:
    """Reads the logs of processes that run, and of those that did."""

    def __init__(self) -> None:
        self._journal = SystemdJournal()

    async def read(
        self, log: str, directory: Path, count: int, after: str | None = None
    ) -> list[LogLine]:
        """Return the last lines of a log, or the first ones after a line seen already.

        `log` is what `SupervisedProcess.log` said; if that is not known, the files are read.
        """
        if log.startswith(IN_JOURNAL):
            return await self._journal.read(log.removeprefix(IN_JOURNAL), count, after)
        return await read_log(directory, count, after)


async def read_log(directory: Path, count: int, after: str | None) -> list[LogLine]:
    """Return the last lines of a directory's log, or the first ones after a line seen already."""
    return await anyio.to_thread.run_sync(_read_files, directory / "logs", count, after)


def _read_files(folder: Path, count: int, after: str | None) -> list[LogLine]:
    try:
        with open_folder(folder.parent) as above, open_folder(folder.name, above) as logs:
            lines = [line for name in _FILES for line in _lines_of(name, logs)]
    except OSError:
        return []
    if after is None:
        return lines[-count:]
    ids = [line.id for line in lines]
    # One that is not there any more: the log has moved on, so all of it is new.
    begin = ids.index(after) + 1 if after in ids else 0
    return lines[begin : begin + count]


def _lines_of(name: str, logs: int) -> list[LogLine]:
    """Return the whole lines at the end of a file; an id is the file's number and where it ends."""
    try:
        file = open_file(name, logs, os.O_RDONLY)
    except OSError:
        return []
    try:
        found = os.fstat(file)
        place = max(0, found.st_size - _MAX_FILE_BYTES)
        chunk = os.pread(file, _MAX_FILE_BYTES, place)
    finally:
        os.close(file)
    lines: list[LogLine] = []
    for line in chunk.splitlines(keepends=True):
        place += len(line)
        if line.endswith(b"\n"):
            text = line.decode(errors="replace").rstrip("\r\n")[:_MAX_CHARACTERS]
            lines.append(LogLine(f"{found.st_ino}-{place}", text))
    return lines


class JournalEntry(msgspec.Struct):
    """A line as `journalctl` writes it; one with odd bytes comes as a list of them."""

    cursor: str = msgspec.field(name="__CURSOR")
    message: str | list[int] | None = msgspec.field(name="MESSAGE", default=None)


class SystemdJournal:
    """The journal, read by `journalctl`."""

    def __init__(
        self,
        *,
        run_by: Sequence[str] = (),  # a program that takes us to where the journal is
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._run_by = list(run_by)
        self._environment = environment
        self._turns = anyio.Semaphore(_MAX_READERS)

    async def is_usable(self) -> bool:
        """Try it: may we write a line, and read it again?"""
        name = f"busd-probe-{uuid.uuid4().hex}"
        told = ["systemd-cat", f"--identifier={name}", "echo", "can busd read this?"]
        with anyio.move_on_after(_PROBE_SECONDS):
            if await self._run(told) != 0:
                return False
            while not await self._read(name, 1, None):
                await anyio.sleep(_PROBE_PAUSE_SECONDS)  # journald writes when it has the time
            return True
        return False

    async def read(self, unit: str, count: int, after: str | None = None) -> list[LogLine]:
        """Return the last lines of a unit's worker, or the first ones after a line seen already."""
        with anyio.move_on_after(_READ_SECONDS):
            return await self._read(identifier_of(unit), count, after)
        return []

    async def settle(self) -> None:
        """Wait until what was printed by now can be read."""
        with anyio.move_on_after(_READ_SECONDS):
            if os.geteuid() != 0 or await self._run(["journalctl", "--sync"]) != 0:
                await anyio.sleep(_LATE_SECONDS)  # only root may ask journald to write all it has

    async def _run(self, words: list[str]) -> int:
        try:
            done = await anyio.run_process(
                [*self._run_by, *words],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                check=False,
                env=self._environment,
            )
        except OSError:
            return -1
        return done.returncode

    async def _read(self, name: str, count: int, after: str | None) -> list[LogLine]:
        command = ["journalctl", "--quiet", "--no-pager", "--all", "--output=json"]
        command += ["--output-fields=MESSAGE"]
        if after is None:
            command += [f"--lines={count}"]
        elif _CURSOR.fullmatch(after):
            command += [f"--after-cursor={after}"]
        # Else it was a line of a file: all that is here is new.
        command += [f"SYSLOG_IDENTIFIER={name}", f"_UID={os.geteuid()}", "_TRANSPORT=stdout"]
        async with self._turns:
            try:
                process = await anyio.open_process(
                    [*self._run_by, *command],
                    stdin=DEVNULL,
                    stdout=PIPE,
                    stderr=DEVNULL,
                    env=self._environment,
                )
            except OSError:
                return []
            async with process:
                return await _first_lines(process, count)


async def find_journal() -> SystemdJournal | None:
    """Return the journal if it can be written and read here."""
    journal = SystemdJournal()
    return journal if await anyio.Path(_SOCKET).exists() and await journal.is_usable() else None


async def _first_lines(process: Process, count: int) -> list[LogLine]:
    """Read so many lines, and end the program if it has more."""
    assert process.stdout is not None
    stream = BufferedByteReceiveStream(process.stdout)
    lines: list[LogLine] = []
    size = 0
    try:
        while len(lines) < count and size < _MAX_BYTES:
            said = await stream.receive_until(b"\n", _MAX_LINE_BYTES)
            size += len(said)
            lines.append(parse_entry(said))
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound):
        pass  # this was all
    except msgspec.MsgspecError:
        pass  # cut off in the middle
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
    return lines


def parse_entry(said: bytes) -> LogLine:
    """Return the line that `journalctl --output=json` has written."""
    entry = msgspec.json.decode(said, type=JournalEntry)
    text = entry.message or ""
    if not isinstance(text, str):
        text = bytes(text).decode(errors="replace")
    return LogLine(entry.cursor, text.rstrip("\r\n")[:_MAX_CHARACTERS])


def identifier_of(unit: str) -> str:
    """Return what the lines of a unit's worker are known by."""
    return unit.removesuffix(".service")
