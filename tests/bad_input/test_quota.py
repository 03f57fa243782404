"""Quotas of a running bus: who is refused is told which one."""

from __future__ import annotations

import json
from contextlib import ExitStack

from tests.daemons import Loop, open_daemon
from tests.wire_peers import LinePeer, join_by, open_tcp, open_unix


def test_a_connection_over_the_quota_is_told_which_one_and_how_much(loop: Loop) -> None:
    with open_daemon(loop, {"quota.connections": 2}) as daemon, ExitStack() as opened:
        join_by(daemon, "unix", "agent:first", opened)
        join_by(daemon, "unix", "agent:second", opened)
        third = LinePeer(opened.enter_context(open_unix(daemon.path)))
        error = json.loads(third.read_frame())["error"]
        assert error["code"] == -32004
        assert error["data"]["rule"] == "quota.connections"
        assert error["data"]["limit"] == 2
        third.expect_close()


def test_a_connection_over_the_limit_of_the_bus_is_told_so(loop: Loop) -> None:
    with open_daemon(loop, {"wire.max_connections": 1}) as daemon, ExitStack() as opened:
        join_by(daemon, "unix", "agent:first", opened)
        second = LinePeer(opened.enter_context(open_tcp(daemon.port)))
        error = json.loads(second.read_frame())["error"]
        assert (error["data"]["rule"], error["data"]["limit"]) == ("max_connections", 1)


def test_a_reload_changes_the_quota_of_those_who_are_here(loop: Loop) -> None:
    with open_daemon(loop) as daemon, ExitStack() as opened:
        peer = join_by(daemon, "unix", "agent:one", opened)
        peer.call("subscribe", {"address": "topic:1"})
        with (daemon.folder / "busd.toml").open("a") as config:
            config.write("\n[quota]\nsubscriptions = 2\n")
        peer.call("bus.reload")
        answer = peer.answer_to(peer.request("subscribe", {"address": "topic:2"}))
        assert answer["error"]["data"]["rule"] == "quota.subscriptions"
        assert answer["error"]["data"]["limit"] == 2
