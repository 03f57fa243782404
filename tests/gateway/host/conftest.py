"""What the tests of the host share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gateway.host.hosts import RunningHost, open_host


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def host(anyio_backend: object) -> AsyncIterator[RunningHost]:
    """A host with the default limits, where nobody is known without a token."""
    async with open_host() as opened:
        yield opened


@pytest.fixture
def ann(host: RunningHost) -> str:
    """The token of the user ann."""
    return host.tokens.new("ann")
