"""Every method, called with the largest input that it allows, on a bus with much to tell.

A call is compared with the largest message that the same bus carries: no method may cost much more
than what everybody may send anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.daemons import Daemon, open_daemon
from tests.wire_peers import LinePeer, open_unix

MIB = 1024 * 1024
LONG = "x" * (MIB - 400)  # with its envelope about the largest frame
TRIES = 5
GENEROUS = 20
PEERS, PATTERNS = 1_200, 4_000

# The largest params of each method; what is refused has been read in full, too.
LARGEST: dict[str, Callable[[], dict[str, Any]]] = {
    "initialize": lambda: {"clientId": LONG},
    "subscribe": lambda: {"address": LONG},
    "unsubscribe": lambda: {"address": LONG},
    "sendMessage": lambda: {"to": "nobody", "payload": {"text": LONG}},
    "ping": lambda: {"more": LONG},
    "getStatus": lambda: {"more": LONG[: MIB // 2]},
    "rpc.discover": lambda: {"more": LONG},
    "bus.explain": lambda: {"to": "a", "from": "b", "type": LONG},
    "bus.newToken": lambda: {"name": LONG},
    "bus.listTokens": lambda: {"more": LONG},
    "bus.revokeToken": lambda: {"name": LONG},
    "bus.listPlugins": lambda: {"more": LONG},
    "bus.trace": lambda: {"messageId": LONG},
    "bus.log": lambda: {"limit": 1_000},
    "bus.about": lambda: {"more": LONG},
    "bus.reload": lambda: {"more": LONG},
    "bus.listMailboxes": lambda: {"prefix": LONG},
    "bus.showMailbox": lambda: {"address": LONG},
    "bus.purgeMailbox": lambda: {"address": LONG},
    "bus.listDead": lambda: {"to": LONG},
    "bus.showDead": lambda: {"id": 2**62},
    "bus.retryDead": lambda: {"ids": list(range(500))},
    "bus.dropDead": lambda: {"ids": list(range(500))},
    "agents.list": lambda: {"limit": 1_000},
    "agents.show": lambda: {"clientId": LONG},
    "agents.spawn": lambda: {"chatId": LONG, "channel": "tg", "channelType": "none"},
    "agents.stop": lambda: {"clientId": LONG},
    "agents.restart": lambda: {"clientId": LONG},
    "agents.logs": lambda: {"clientId": LONG},
    "agents.export": lambda: {"after": LONG},
    "bridges.list": lambda: {"more": LONG},
    "bridges.show": lambda: {"name": LONG},
    "bridges.logs": lambda: {"name": LONG},
    "bridges.restart": lambda: {"name": LONG},
    "gateway.status": lambda: {"more": LONG},
    "gateway.newToken": lambda: {"name": LONG},
    "gateway.listTokens": lambda: {"more": LONG},
    "gateway.revokeToken": lambda: {"name": LONG},
    "gateway.restart": lambda: {"more": LONG},
}
# They wait for something else than the bus: the disk and the plugins; nobody waits for them.
WAITS = {"bus.reload"}


@pytest.fixture(scope="module")
def crowded() -> Iterator[tuple[Daemon, LinePeer]]:
    with open_daemon("uvloop") as daemon, ExitStack() as opened:
        peers = []
        for number in range(PEERS):
            peers.append(LinePeer(opened.enter_context(open_unix(daemon.path))))
            peers[-1].request("initialize", {"clientId": f"idle:{number}"})
        for peer in peers:
            peer.read_frame()
        asker = LinePeer(opened.enter_context(open_unix(daemon.path)))
        asker.initialize("agent:asker")
        for start in range(0, PATTERNS, 500):
            ids = [
                asker.request("subscribe", {"address": f"topic:{number}"})
                for number in range(start, start + 500)
            ]
            for request_id in ids:
                asker.answer_to(request_id)
        yield daemon, asker


def seconds_of(peer: LinePeer, method: str, params: dict[str, Any]) -> float:
    """Return the shortest time from the request to its answer."""
    times = []
    for _ in range(TRIES):
        start = time.perf_counter()
        peer.answer_to(peer.request(method, params))
        times.append(time.perf_counter() - start)
    return min(times)


def test_no_method_costs_much_more_than_the_largest_message(
    crowded: tuple[Daemon, LinePeer],
) -> None:
    _, peer = crowded
    described = {method["name"] for method in peer.call("rpc.discover")["methods"]}
    assert described - {"bus.stop"} == set(LARGEST), "give the largest params of each method"
    reference = seconds_of(peer, "sendMessage", LARGEST["sendMessage"]())
    costs = {name: seconds_of(peer, name, largest()) for name, largest in LARGEST.items()}
    dear = {
        name: f"{cost / reference:.1f} times"
        for name, cost in costs.items()
        if cost > GENEROUS * reference and name not in WAITS
    }
    assert not dear


def test_a_batch_of_the_dearest_calls_costs_what_they_cost_one_by_one(
    crowded: tuple[Daemon, LinePeer],
) -> None:
    _, peer = crowded
    ping = seconds_of(peer, "ping", {})
    # As notifications they are not even answered: the document is not made for each.
    notes = [{"jsonrpc": "2.0", "method": "rpc.discover"}] * 999
    start = time.perf_counter()
    peer.send_json([*notes, {"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    peer.read_frame()
    assert time.perf_counter() - start < GENEROUS * 1_000 * ping
