"""What the tests of the hub share: a gateway on a bus in memory, on asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from busd.testing.gateway import GatewayKit, open_gateway


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def kit(anyio_backend: str) -> AsyncIterator[GatewayKit]:
    """A gateway whose words go to `agent:bob`."""
    async with open_gateway() as opened:
        yield opened
