"""What the tests of access share: a strict bus with two grants and two tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.bus.access.guarded import GUEST, Grants, new_token, open_guarded, owner_token
from tests.daemons import Daemon, Loop

RIGHTS = {
    "client_ids": ["guest:*"],
    "speak_as": ["as:*"],
    "send_to": ["desk:*"],
    "subscribe": ["news:*", "exact:1"],
}
GRANTS: Grants = [
    {"name": "guests", "uid": GUEST, **RIGHTS},
    {"name": "limited", "token": "limited", **RIGHTS},
]


class Guarded(NamedTuple):
    """A strict bus, and the tokens that it knows by their names."""

    daemon: Daemon
    tokens: dict[str, str]


@pytest.fixture(scope="session")
def guarded(loop: Loop) -> Iterator[Guarded]:
    with open_guarded(loop, GRANTS) as daemon:
        tokens = {name: new_token(daemon, name) for name in ("limited", "plain")}
        yield Guarded(daemon, {**tokens, "owner": owner_token(daemon)})
