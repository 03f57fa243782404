"""Run the conformance suite against the engines of `tests.mail.stores`."""

from __future__ import annotations

from tests.mail.conformance import *  # noqa: F403 (the tests)
