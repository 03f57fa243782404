"""The engines that the conformance suite runs against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from busd.bus.mail import MailLimits
from tests.mail.stores import ENGINES, Subject, open_subject

pytest.register_assert_rewrite("tests.mail.conformance")
OpenWith = Callable[[MailLimits], Subject]


@pytest.fixture(params=ENGINES)
def open_with(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenWith]:
    """Open each engine with limits of the test's own."""
    with ExitStack() as stack:

        def open_one(limits: MailLimits) -> Subject:
            subject = open_subject(request.param, tmp_path / "mail.db", limits)
            stack.callback(subject.close)
            return subject

        yield open_one


@pytest.fixture
def subject(open_with: OpenWith) -> Subject:
    return open_with(MailLimits())


@pytest.fixture(params=[each for each in ENGINES if each != "memory"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    """Each engine that survives a restart."""
    subject = open_subject(request.param, tmp_path / "mail.db")
    yield subject
    subject.close()
