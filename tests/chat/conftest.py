"""The fixtures of the command line, which these tests use, too."""

from __future__ import annotations

from tests.cli.conftest import address, bob, join, lonely, loop, terminal

__all__ = ["address", "bob", "join", "lonely", "loop", "terminal"]
