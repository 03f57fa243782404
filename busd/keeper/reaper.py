"""The reaper: the parent of the keeper, which ends what a killed keeper leaves behind.

It adopts orphans (`PR_SET_CHILD_SUBREAPER`), so the processes that remain when the keeper and its
init processes were killed become its children. It holds the keeper's lock until it has ended them,
so that no other keeper starts meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from busd.keeper.control_group import open_group
from busd.keeper.credentials import FOLDER, remove_credentials
from busd.keeper.tree import adopt_orphans, end_descendants, end_with_state_id

_HOME, _KEEPER, _STATE_ID = "BUSD_KEEPER_HOME", "BUSD_KEEPER_PID", "BUSD_KEEPER_MARK"
_PACKAGE = "BUSD_KEEPER_PACKAGE"
_ROOT = str(Path(__file__).absolute().parents[2])
# Its arguments must not contain "busd": `pkill -9 -f busd` ends the keeper, but not the reaper.
_PROGRAM = f"""
import importlib, os, sys
sys.path.append(os.environ["{_HOME}"])
importlib.import_module(os.environ["{_PACKAGE}"] + ".keeper.reaper").main()
"""


def become_reaper(keeper: int, state_id: str, lock: int) -> NoReturn:
    """Replace this process by the reaper of the keeper that it has forked; raise OSError."""
    os.set_inheritable(lock, True)
    environment = {
        **os.environ,
        _HOME: _ROOT,
        _PACKAGE: __name__.partition(".")[0],
        _KEEPER: str(keeper),
        _STATE_ID: state_id,
    }
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # so that the keeper ends first
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", _PROGRAM], environment)  # noqa: S606


def main() -> None:
    """Wait until the keeper has ended, then end everything that its workers have started."""
    keeper = int(os.environ[_KEEPER])
    while os.wait()[0] != keeper:
        pass  # an orphan of a worker
    end_descendants(os.getpid())
    end_remaining(os.environ[_STATE_ID])
    remove_credentials(Path(FOLDER))  # it runs in the state directory


def end_remaining(state_id: str) -> None:
    """End the remaining processes of a state directory: in its control group, or with its id."""
    open_group(state_id).end()
    end_with_state_id(state_id)
