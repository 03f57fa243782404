"""Rights: the union of all grants that fit, and what fits."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from busd.bus.access import Grant, Identity, Rights, check_grants, covers
from busd.errors import ConfigError
from tests.bus.access.guarded import (
    GUEST,
    OTHER_GUEST,
    Grants,
    connect_as,
    error_of,
    join_as,
    new_token,
    open_guarded,
)


def test_the_rights_of_a_peer_are_those_of_all_its_grants(opened: ExitStack) -> None:
    grants: Grants = [
        {"name": "one", "uid": GUEST, "client_ids": ["a:*"], "send_to": ["x:*"], "subscribe": []},
        {"name": "two", "uid": GUEST, "client_ids": ["b:*"], "send_to": [], "subscribe": ["y:*"]},
        {"name": "more", "token": "extra", "client_ids": [], "send_to": ["z:*"], "subscribe": []},
        {"name": "both", "uid": OTHER_GUEST, "token": "extra", "client_ids": ["c:*"]},
    ]
    with open_guarded("uvloop", grants) as daemon:
        token = new_token(daemon, "extra")
        guest = join_as(GUEST, daemon, "b:1", opened)
        guest.call("sendMessage", {"to": "x:1", "payload": {}})
        guest.call("subscribe", {"address": "y:*"})
        message = {"to": "z:1", "payload": {}}
        assert error_of(guest, "sendMessage", message) == (-32602, "grant.one.send_to")

        guest = connect_as(GUEST, daemon, opened)
        guest.initialize("a:1", auth={"token": token})
        guest.call("sendMessage", message)
        # A grant that names two facts is for those of whom both are true.
        other = connect_as(OTHER_GUEST, daemon, opened)
        assert error_of(other, "initialize", {"clientId": "c:1"}) == (-32005, "authentication")
        other.initialize("c:1", auth={"token": token})


def test_the_most_generous_limit_counts() -> None:
    slow = Grant(name="slow", uid=1, messages_per_second=1, burst=5, max_frame_bytes=1000)
    fast = Grant(name="fast", uid=1, messages_per_second=9, burst=2, max_frame_bytes=9000)
    free = Grant(name="free", uid=1)
    assert Rights([slow, fast]).rate == (9, 2)
    assert Rights([slow, free]).rate is None
    assert Rights([slow, fast]).max_frame_bytes(2000) == 9000
    assert Rights([slow, free]).max_frame_bytes(2000) == 2000
    assert Rights([slow]).max_frame_bytes(2000) == 1000


def test_who_has_no_grant_has_no_rights() -> None:
    assert not Rights([]).may_be("a").allowed
    assert Rights([]).may_be("a").rule == "authentication"
    assert not Identity().has(Grant())
    assert not Identity(uid=0).has(Grant(unit="x.service"))
    assert Identity(uid=0).has(Grant(uid=0))


@pytest.mark.parametrize(
    ("granted", "pattern", "is_covered"),
    [
        ("*", "*", True),
        ("*", "a?b*", True),
        ("tg:*", "tg:*", True),
        ("tg:*", "tg:1*", True),
        ("tg:*", "tg:?", True),
        ("tg:*", "tg:", True),
        ("tg:?", "tg:1", True),
        ("tg:?", "tg:?", True),
        ("tg:?", "tg:*", False),
        ("tg:*", "t*", False),
        ("tg:*", "*", False),
        ("tg:*", "t?:1", False),
        ("tg:*", "?g:*", False),
        ("tg:1", "tg:1", True),
        ("tg:1", "tg:?", False),
        ("*:x", "a:x", True),
        ("*:x", "*", False),
    ],
)
def test_a_pattern_is_covered_if_all_it_matches_is_granted(
    granted: str, pattern: str, is_covered: bool
) -> None:
    assert covers(granted, pattern) is is_covered


@pytest.mark.parametrize(
    ("grant", "said"),
    [
        (Grant(), "grant 1 is for nobody: name a uid, unit, token or certificate"),
        (Grant(name="x"), "grant 1 is for nobody"),
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(grant: Grant, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_grants([grant])


def test_a_grant_without_a_name_is_called_by_its_number() -> None:
    named = check_grants([Grant(uid=1), Grant(uid=2, name="two"), Grant(uid=3)])
    assert [grant.name for grant in named] == ["1", "two", "3"]
