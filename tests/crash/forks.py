"""A process that is killed and goes on: a parent that forks its child again."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from tests.crash.processes import die_with_parent, say

KILL, TERMINATE = signal.SIGUSR1, signal.SIGUSR2  # to the parent: do that to the child
AGAIN = 75  # the exit code of a child that wants to be forked again


def fork_forever(name: str, work: Callable[[], None]) -> NoReturn:
    """Run `work` in a child; fork another one whenever it is killed or wants that.

    Exits with the code of the child once that ends in another way.
    """
    child = 0

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):  # it has just ended by itself
            if child:
                os.kill(child, signal.SIGKILL if number == KILL else signal.SIGTERM)

    both = {KILL, TERMINATE}
    for number in both:
        signal.signal(number, pass_on)
    parent = os.getpid()
    say(name)
    while True:
        signal.pthread_sigmask(signal.SIG_BLOCK, both)  # until `child` is known
        child = os.fork()
        if not child:
            _run(work, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
        _, status = os.waitpid(child, 0)
        child = 0
        code = os.waitstatus_to_exitcode(status)
        if code >= 0 and code != AGAIN:
            sys.exit(code)


def _run(work: Callable[[], None], parent: int) -> NoReturn:
    """Work as a child that ends with its parent."""
    try:
        die_with_parent(parent)
        for number in (KILL, TERMINATE):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {KILL, TERMINATE})
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)
