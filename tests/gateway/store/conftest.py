"""Stores that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from busd.gateway.store_limits import StoreLimits
from tests.gateway.store.opened import Opened

OpenWith = Callable[[StoreLimits], Opened]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gateway.db"


@pytest.fixture
def open_with(path: Path) -> Iterator[OpenWith]:
    """Open the store with limits of the test's own."""
    with ExitStack() as stack:

        def open_one(limits: StoreLimits) -> Opened:
            opened = Opened(path, limits)
            stack.callback(opened.close)
            return opened

        yield open_one


@pytest.fixture
def store(open_with: OpenWith) -> Opened:
    return open_with(StoreLimits())
