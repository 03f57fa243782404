"""Many clients at once, in a small edition of `python -m tests.gateway.load`."""

from __future__ import annotations

import subprocess
import sys

from tests.daemons import PATIENCE_SECONDS


def test_every_message_of_many_clients_is_answered() -> None:
    options = ("--clients", "100", "--seconds", "2", "--pause", "1")
    done = subprocess.run(
        [sys.executable, "-m", "tests.gateway.load", *options],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if " messages answered" in line]
    answered, _, rest = line.partition(" messages answered in 2 s, ")
    assert int(answered) >= 50
    assert rest.startswith("0 not: "), done.stdout
    assert "times: " not in done.stdout, "there were errors"
