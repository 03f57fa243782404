"""What the tests of webhooks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.plugins.hook.place import Hooks, open_hooks


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    with open_hooks(
        tmp_path_factory.mktemp("hooks"), max_body_bytes=65_536, wait_seconds=60.0
    ) as opened:
        yield opened
