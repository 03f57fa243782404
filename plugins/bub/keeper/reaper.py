"""The reaper: a process that outlives its keeper and ends what a killed keeper leaves behind.

The kernel ends workers with their keeper, but not what the workers have started. A daemon that
lives sees to that; the reaper does when the daemon was killed, too. It holds the keeper's lock
until it is done, so no other keeper starts meanwhile. If the reaper is killed, the keeper starts
another one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from .credentials import FOLDER, remove_credentials
from .family import end_household

_HOME = "BUSD_KEEPER_HOME"
_HOUSEHOLD = "BUSD_KEEPER_HOUSEHOLD"
# Not in its arguments: `pkill -9 -f busd` ends the keeper, and the reaper is there for that.
_PROGRAM = f"""
import os, sys
sys.path.append(os.environ["{_HOME}"])
from keeper.reaper import main
main()
"""
_LONG_RUN_SECONDS = 1.0
_PAUSE_SECONDS = 1.0  # between two starts of a reaper that does not last


class Reaper:
    """The keeper's view of its reaper."""

    def __init__(self, household: int, lock: int) -> None:
        self._household = household
        self._lock = lock
        # Nobody but the keeper has the end for writing: it is closed when the keeper has ended.
        self._waits_at, self._lifeline = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; raises OSError."""
        environment = {**os.environ, _HOME: str(Path(__file__).parent.parent)}
        environment[_HOUSEHOLD] = str(self._household)
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            env=environment,
            stdin=self._waits_at,
            pass_fds=(self._lock,),
            start_new_session=True,
        )

    def on_exit(self, exit_code: int) -> float:
        """Note its end; return in how many seconds to start the next one."""
        assert self._process is not None
        self._process.returncode = exit_code
        self._process = None
        has_lasted = time.monotonic() - self._started_at > _LONG_RUN_SECONDS
        return 0.0 if has_lasted else _PAUSE_SECONDS


def main() -> None:
    """Wait until the keeper has ended, then end all that its workers have started."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the keeper ends first
    while os.read(0, 1):
        pass  # nothing is ever written
    end_household(int(os.environ[_HOUSEHOLD]))
    remove_credentials(Path(FOLDER))  # it runs in the state directory
