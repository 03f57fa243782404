"""`busd.run`: a program ends in peace, or with one line that says what is wrong."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from busd import run
from busd.client.run import Loop
from tests.cli.terminal import Said, Terminal

LOOPS: list[Loop] = ["asyncio", "uvloop", "trio"]
PROGRAM = """
import anyio
from busd import BusdError, run

async def main():
    try:
        print("ready", flush=True)
        {body}
    finally:
        print("cleaned up", flush=True)

run(main, loop="{loop}")
print("after", flush=True)
"""


def ended(folder: Path, loop: Loop, body: str, *signals: signal.Signals) -> Said:
    """Run a program until it is ready, send it signals, and return how it ended."""
    text = PROGRAM.format(body=body, loop=loop)
    with Terminal(folder).start_any([sys.executable, "-c", text]) as running:
        assert running.stdout.readline() == "ready\n"
        for number in signals:
            running.process.send_signal(number)
        return running.end()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_what_runs_and_the_program_goes_on(
    tmp_path: Path, loop: Loop, number: signal.Signals
) -> None:
    said = ended(tmp_path, loop, "await anyio.sleep_forever()", number)
    assert said == (0, "cleaned up\nafter\n", "")


@pytest.mark.parametrize("loop", LOOPS)
def test_an_error_of_the_bus_is_one_line(tmp_path: Path, loop: Loop) -> None:
    said = ended(tmp_path, loop, "raise BusdError('no such luck')")
    assert said == (1, "cleaned up\n", "busd: no such luck\n")


@pytest.mark.parametrize("loop", LOOPS)
def test_any_other_error_is_raised_as_it_is(loop: Loop) -> None:
    async def main() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(main, loop=loop)


def test_the_signals_are_as_before_when_it_is_over() -> None:
    async def main() -> None:
        pass

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(main)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
