"""The systemd unit of a peer, by the kernel's word."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from busd.wire.credentials import parse_unit, unit_of
from tests.bus.access.guarded import (
    GUEST,
    OTHER_GUEST,
    connect_as,
    error_of,
    join_as,
    open_guarded,
)


@pytest.mark.parametrize(
    ("groups", "unit"),
    [
        ("0::/system.slice/bridge.service\n", "bridge.service"),
        ("0::/system.slice/system-worker.slice/worker@7.service\n", "worker@7.service"),
        ("0::/system.slice/bridge.service/inner\n", "bridge.service"),
        ("0::/system.slice/bridge.service/forged.service\n", "bridge.service"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user-7.slice/user@7.service/app.slice/mine.service\n", "mine.service"),
        ("0::/user.slice/user-7.slice/user@7.service/app.slice/a.scope/b.scope\n", "a.scope"),
        ("0::/user.slice/user-8.slice/user@8.service/app.slice/mine.service\n", "user@8.service"),
        ("0::/user.slice/user-7.slice/user@7.service\n", "user@7.service"),
        ("5:memory:/\n1:name=systemd:/system.slice/a.service\n0::/\n", "a.service"),
        ("0::/system.slice/a:b.service\n", "a:b.service"),
        ("0::/\n", ""),
        ("0::/user.slice\n", ""),
        ("0::/my.services/x\n", ""),
        ("", ""),
    ],
)
def test_the_unit_is_the_outermost_and_of_others_only_their_manager(groups: str, unit: str) -> None:
    assert parse_unit(groups, own_uid=7) == unit


def test_a_process_that_is_gone_has_no_unit() -> None:
    assert unit_of(2**22 + 1) == ""


def test_a_grant_for_a_unit_lets_its_processes_in(opened: ExitStack) -> None:
    unit = unit_of(os.getpid())
    if not unit:
        pytest.skip("the tests do not run in a systemd unit")
    mine = {"name": "mine", "unit": unit, "client_ids": ["unit:*"]}
    with open_guarded("uvloop", [mine]) as daemon:
        join_as(GUEST, daemon, "unit:1", opened)
        peer = connect_as(OTHER_GUEST, daemon, opened)
        refusal = error_of(peer, "initialize", {"clientId": "agent:1"})
        assert refusal == (-32602, "grant.mine.client_ids")
    with open_guarded("uvloop", [mine | {"unit": "another.service"}]) as daemon:
        peer = connect_as(GUEST, daemon, opened)
        assert error_of(peer, "initialize", {"clientId": "unit:1"}) == (-32005, "authentication")
