"""What the tests of agents share: the daemon runs on either loop, the tests on asyncio."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
