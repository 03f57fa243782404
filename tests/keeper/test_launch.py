"""A launch on the keeper's socket, spelled as keepers of earlier versions know it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busd.keeper.launch import Launch, decode_launch, encode_launch

LAUNCH = Launch("clock", ["date", "-u"], Path("/srv/clock"), {"TZ": "UTC"}, tasks_max=20)


def test_a_launch_is_spelled_as_ever() -> None:
    assert encode_launch(LAUNCH) == {
        "client_id": "clock",
        "command": ["date", "-u"],
        "workspace": "/srv/clock",
        "environment": {"TZ": "UTC"},
        "credentials": {},
        "memory_max_bytes": None,
        "file_max_bytes": None,
        "cpu_percent": None,
        "tasks_max": 20,
        "restarts": 5,
        "restart_seconds": 0.5,
        "stop_seconds": 5.0,
    }


def test_a_launch_comes_back_as_it_was() -> None:
    assert decode_launch(json.loads(json.dumps(encode_launch(LAUNCH)))) == LAUNCH


def test_what_a_later_daemon_adds_is_ignored() -> None:
    assert decode_launch({**encode_launch(LAUNCH), "nice": 5}) == LAUNCH


def test_a_launch_without_a_name_is_none() -> None:
    with pytest.raises(TypeError, match="name"):
        decode_launch({"command": ["date"], "workspace": "/"})
