"""How hard hypothesis tries: the same examples every time, or many new ones."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from structlog.testing import capture_logs

settings.register_profile(
    "busd",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "hunt", settings.get_profile("busd"), derandomize=False, max_examples=5_000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "busd"))


@pytest.fixture(autouse=True, scope="package")
def quiet() -> Iterator[None]:
    """Thousands of peers join and leave here: nobody wants to read of each."""
    with capture_logs():
        yield
