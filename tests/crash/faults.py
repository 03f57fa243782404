"""Senders and workers over a daemon that is killed at every write: before, during and after it."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import get_args

from tests.crash.faulty import Fault, Moment, tear_log
from tests.crash.invariants import Findings, open_mail
from tests.crash.kills import add_clients, open_scene
from tests.crash.processes import BUS, Processes
from tests.daemons import Loop

MOMENTS: tuple[Moment, ...] = get_args(Moment)


def faults_at(numbers: Iterable[int]) -> Iterator[Fault]:
    """Return all faults at these writes; each daemon goes on with what the one before it left."""
    for number, moment in product(numbers, MOMENTS):
        yield Fault(number, moment)


def run_faults(
    loop: Loop, seed: int, faults: Iterable[Fault], processes: Processes | None = None
) -> Findings:
    """Kill a daemon at each of these faults; return what was found in the end."""
    with open_scene(loop, processes=processes) as scene:
        add_clients(scene, seed)
        for number, fault in enumerate(faults):
            scene.begin(fault)
            assert scene.processes.wait(BUS) == -signal.SIGKILL, scene.log.read_text()
            if fault.moment == "middle":
                tear_log(scene.mail, random.Random(f"{seed} {number}"))
            _check_file(scene.mail)
        scene.start()
        return scene.finish()


def _check_file(path: Path) -> None:
    """Make sure that the database is as after one of its transactions."""
    if not path.stat().st_size and not Path(f"{path}-wal").exists():
        return  # nothing is in it yet
    with closing(open_mail(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
