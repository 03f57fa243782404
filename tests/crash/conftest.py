"""What the crash tests share: the process from which all others are forked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.processes import Processes


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Start it once: to import the bus takes longer than a short test."""
    processes = Processes()
    yield processes
    processes.close()
