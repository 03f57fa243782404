"""A worker as a transient unit: its name, its properties, and the files that go with it."""

from __future__ import annotations

import hashlib
import math
import re
import shutil
import signal
from pathlib import Path

import msgspec

from busd.keeper.launch import Launch
from busd.keeper.log import FILE_NAME, make_log
from busd.keeper.worker import BAD_CONFIGURATION, reason_of
from busd.supervise.logs import identifier_of
from busd.supervise.service_manager import Property
from busd.supervise.systemd_limits import SLICE, limit_properties
from busd.supervise.worker import SpawnFailed, environment_of

_RUN_SECONDS = 60  # a longer run counts as fresh
_MAX_RESTART_SECONDS = 30.0
_HAS_STEPS = 254  # the first version whose pauses between restarts can grow
# Signals that systemd takes for a clean end; a worker that nobody asked to end has failed.
_NO_CLEAN_END = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE]
# What systemd exits with in a program's place when it cannot run it.
_SYSTEMD_STATUSES = range(200, 246)
_NO_EXEC = 203
_NO_CREDENTIALS = 243
# Scripts that units run are files: in its own file of a transient unit, systemd 252 writes a `$` of
# a command so that it reads another one after a daemon-reload.
_SCRIPTS = {
    # Each end of the worker, as systemd saw it, is one line.
    "note-ending.sh": 'echo "$SERVICE_RESULT $EXIT_CODE $EXIT_STATUS" >> "$1"',
    # Where a manager cannot mount for its units, systemd gives an empty folder and says nothing.
    "has-credentials.sh": 'for n; do [ -e "$CREDENTIALS_DIRECTORY/$n" ] || exit 1; done',
}
COLLECTED: Property = ("CollectMode", ("s", "inactive-or-failed"))  # forgotten once it has ended


class Ending(msgspec.Struct, frozen=True):
    """How one run of a worker ended."""

    result: str  # success, exit-code, signal, oom-kill, timeout ...
    code: str  # exited, killed, dumped
    status: str  # 3, TERM

    @property
    def reason(self) -> str:
        if self.result == "oom-kill":
            return "out of memory"
        if self.code == "exited" and self.status.isdigit():
            return reason_of(int(self.status))
        return f"killed by SIG{self.status}" if self.code else self.result

    @property
    def is_clean(self) -> bool:
        return self.result == "success" and (self.code, self.status) in (
            ("exited", "0"),
            ("killed", "TERM"),
        )


def why_not(ending: Ending, launch: Launch) -> str | None:
    """Return why systemd could not run a program; None if it could."""
    if not ending.code and ending.result == "exit-code" and launch.credentials:
        return (
            f"systemd did not bring its credentials to it: {', '.join(launch.credentials)}; "
            "the spawner `subprocess` would"
        )
    if ending.code != "exited" or not ending.status.isdigit():
        return None
    status = int(ending.status)
    if status == _NO_EXEC:
        return f"not a program: {launch.command[0]}"
    if status == _NO_CREDENTIALS:
        return f"its credentials cannot be loaded: {', '.join(launch.credentials)}"
    if status in _SYSTEMD_STATUSES:
        return f"systemd could not run {launch.command[0]}: status {status}"
    return None


def unit_prefix(state_id: str) -> str:
    """Return what the names of all units of one state directory begin with."""
    return f"busd-worker-{state_id}-"


def unit_name(prefix: str, name: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "-", name)[:60].strip("-")
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{prefix}{words}-{digest}.service"


def write_scripts(folder: Path) -> None:
    """Write the scripts that units run, each at once: units of an earlier bus may run them now."""
    for name, text in _SCRIPTS.items():
        new = folder / f"{name}.new"
        new.touch(mode=0o600)
        new.write_text(f"{text}\n")
        new.replace(folder / name)


class UnitFiles:
    """The files of a unit in the state directory."""

    def __init__(self, folder: Path, unit: str) -> None:
        self._unit = unit
        self._folder = folder
        self._endings = folder / f"{unit}.endings"
        self._environment = folder / f"{unit}.environment"
        self._read = 0

    def prepare(self, launch: Launch, *, has_journal: bool) -> None:
        """Write what the unit will read; nothing of it is on a command line."""
        if not has_journal:
            make_log(launch.directory)
        self._endings.touch(mode=0o600)
        self._endings.write_bytes(b"")
        self._environment.touch(mode=0o600)
        self._environment.write_text(environment_file(environment_of(launch)))

    def skip(self) -> None:
        """Record what is there as known: it happened before this daemon."""
        self.new_endings()

    def forget_position(self) -> None:
        """Let the next look begin at the first run."""
        self._read = 0

    def new_endings(self) -> list[Ending]:
        """Return how the runs ended that have ended since the last look."""
        try:
            if self._endings.stat().st_size == self._read:
                return []
            with self._endings.open("rb") as file:
                file.seek(self._read)
                said = file.read(65_536)
        except OSError:
            return []
        whole = said[: said.rfind(b"\n") + 1]
        self._read += len(whole)
        rows = (line.split(" ") for line in whole.decode(errors="replace").splitlines())
        return [Ending(*row) for row in rows if len(row) == 3]

    def properties(
        self, launch: Launch, version: int, guard: str, *, has_journal: bool
    ) -> list[Property]:
        """Return all properties of the unit but its command, as that version takes them."""
        note = ["/bin/sh", str(self._folder / "note-ending.sh"), str(self._endings)]
        properties: list[Property] = [
            ("Description", ("s", f"worker {launch.name}")),
            COLLECTED,
            ("Slice", ("s", SLICE)),
            ("BindsTo", ("as", [guard])),
            ("After", ("as", [guard])),
            ("Type", ("s", "exec")),
            ("WorkingDirectory", ("s", str(launch.directory))),
            ("EnvironmentFiles", ("a(sb)", [(str(self._environment), False)])),
            ("UMask", ("u", 0o077)),
            ("SyslogIdentifier", ("s", identifier_of(self._unit))),
            ("KillMode", ("s", "control-group")),
            ("TimeoutStopUSec", ("t", _microseconds(launch.stop_seconds))),
            ("OOMScoreAdjust", ("i", 500)),
            ("OOMPolicy", ("s", "kill")),
            exec_property("ExecStopPost", note),
            *output_properties(launch, has_journal=has_journal),
            *restart_properties(launch, version),
            *limit_properties(launch),
        ]
        if launch.credentials:
            check = ["/bin/sh", str(self._folder / "has-credentials.sh"), *launch.credentials]
            credentials = [(name, str(path)) for name, path in launch.credentials.items()]
            properties.append(("LoadCredential", ("a(ss)", credentials)))
            properties.append(exec_property("ExecStartPre", check))
        return properties

    def remove(self) -> None:
        self._endings.unlink(missing_ok=True)
        self._environment.unlink(missing_ok=True)


def output_properties(launch: Launch, *, has_journal: bool) -> list[Property]:
    if has_journal:
        return [(f"Standard{name}", ("s", "journal")) for name in ("Output", "Error")]
    log = str(launch.directory / "logs" / FILE_NAME)
    return [(f"Standard{name}FileToAppend", ("s", log)) for name in ("Output", "Error")]


def restart_properties(launch: Launch, version: int) -> list[Property]:
    """Return the properties for starting it again.

    A run that lasts longer than a minute counts as fresh: of those at most `restarts + 1` begin
    within as many minutes, of shorter ones more do.
    """
    if launch.restarts <= 0:
        return [("Restart", ("s", "no"))]
    starts = launch.restarts + 1
    first = min(launch.restart_seconds, _MAX_RESTART_SECONDS)
    properties: list[Property] = [
        ("Restart", ("s", "on-failure")),
        ("RestartForceExitStatus", ("(aiai)", ([], [int(each) for each in _NO_CLEAN_END]))),
        ("RestartPreventExitStatus", ("(aiai)", ([BAD_CONFIGURATION], []))),
        ("RestartUSec", ("t", _microseconds(first))),
        ("StartLimitBurst", ("u", starts)),
        ("StartLimitIntervalUSec", ("t", _microseconds(starts * _RUN_SECONDS))),
    ]
    if version >= _HAS_STEPS and 0 < first < _MAX_RESTART_SECONDS:
        # So many that each pause is about twice the one before, as the keeper does it.
        steps = math.ceil(math.log2(_MAX_RESTART_SECONDS / first))
        properties.append(("RestartSteps", ("u", steps)))
        properties.append(("RestartMaxDelayUSec", ("t", _microseconds(_MAX_RESTART_SECONDS))))
    return properties


def exec_property(name: str, command: list[str]) -> Property:
    """Return a command line as a property; systemd puts variables into it, `$$` is a plain `$`."""
    program, *words = command
    escaped = [program, *(word.replace("$", "$$") for word in words)]
    return name, ("a(sasb)", [(program, escaped, False)])


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def environment_file(environment: dict[str, str]) -> str:
    return "".join(f"{name}={quoted(value)}\n" for name, value in environment.items())


def quoted(text: str) -> str:
    """Quote a value as a file of variables has it."""
    return '"' + re.sub(r'(["\\$`])', r"\\\1", text) + '"'


def command_of(launch: Launch) -> list[str]:
    """Return the command line with the program's whole path; raise SpawnFailed if it is none."""
    if not launch.command or not launch.command[0]:
        raise SpawnFailed("no program is named")
    if not launch.directory.is_dir():
        raise SpawnFailed(f"no such workspace: {launch.directory}")
    program = launch.command[0]
    if "/" in program:
        found = launch.directory / program
        if not found.exists():
            raise SpawnFailed(f"no such program: {program}")
        path = shutil.which(str(found))
        if path is None:
            raise SpawnFailed(f"not allowed to run: {program}")
    else:
        path = shutil.which(program, path=environment_of(launch).get("PATH"))
        if path is None:
            raise SpawnFailed(f"no such program: {program}")
    for name, source in launch.credentials.items():
        if not Path(source).is_file():
            raise SpawnFailed(f"credential {name}: {source}: No such file or directory")
    return [path, *launch.command[1:]]
