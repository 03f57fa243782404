"""`/metrics`: readable by Prometheus, and its numbers add up to what really happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon
from tests.http_pages import fetch
from tests.wire_peers import Peer, join_by, until_gone

Samples = dict[str, float]


@pytest.fixture
def fresh(loop: Loop) -> Iterator[Daemon]:
    """A daemon of this test's own, on which nothing has happened yet."""
    with open_daemon(loop, {"delivery.ack_seconds": 0.5, "delivery.max_unanswered": 1}) as daemon:
        yield daemon


def scrape(daemon: Daemon) -> Samples:
    """Return every sample by its name, with its labels as Prometheus writes them."""
    page = fetch(daemon, "/metrics")
    assert page.status == 200
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples: Samples = {}
    for family in text_string_to_metric_families(page.text):
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in samples
            samples[name] = sample.value
    return samples


def acks(samples: Samples) -> dict[str, float]:
    start = "busd_acks_received_total{outcome="
    return {
        name.removeprefix(start).rstrip("}"): value
        for name, value in samples.items()
        if name.startswith(start)
    }


def exchange(sender: Peer, receiver: Peer, to: str, *, success: bool = True) -> None:
    """Have one message sent, answered, and the sender told."""
    sent = sender.send_message(to)
    receiver.answer(receiver.next_message(), {"success": success, "message": "", "payload": {}})
    assert sender.answer_to(sent)["result"]["acks"][0]["success"] is success


def test_a_bus_on_which_nothing_happened_says_so(fresh: Daemon, loop: Loop) -> None:
    samples = scrape(fresh)
    for name in ("peers", "messages_unanswered", "peers_clogged", "unread_bytes"):
        assert samples[f"busd_{name}"] == 0, name
    for name in ("messages_accepted_total", "messages_unrouted_total", "delivery_seconds_count"):
        assert samples[f"busd_{name}"] == 0, name
    assert acks(samples) == {"ok": 0}
    assert samples["busd_connections"] == 1  # the one that asks
    assert samples["busd_journal_rows_dropped_total"] == 0
    assert -0.1 < samples["busd_loop_lag_seconds"] < PATIENCE_SECONDS
    [info] = [name for name in samples if name.startswith("busd_info{")]
    assert f"loop={loop}" in info


def test_the_counts_add_up_after_known_traffic(fresh: Daemon, opened: ExitStack) -> None:
    alice, bob, carol, dave, _ = (
        join_by(fresh, "unix", name, opened) for name in ("alice", "bob", "carol", "dave", "eve")
    )
    for _ in range(32):
        exchange(alice, bob, "bob")
    exchange(alice, bob, "bob", success=False)
    assert alice.answer_to(alice.send_message("nobody"))["result"]["undelivered"] == "no route"
    # to two at once
    for peer in (bob, carol):
        peer.call("subscribe", {"address": "all"})
    sent = alice.send_message("all")
    for peer in (bob, carol):
        peer.answer(peer.next_message(), {"success": True})
    assert len(alice.answer_to(sent)["result"]["acks"]) == 2
    # to one that leaves, and to one that never answers and is busy therefore
    lost = alice.send_message("dave")
    dave.next_message()
    dave.close()
    assert not alice.answer_to(lost)["result"]["acks"][0]["success"]
    late, busy = alice.send_message("eve"), alice.send_message("eve")
    assert alice.answer_to(busy)["result"]["acks"][0]["message"] == "peer is busy"
    assert alice.answer_to(late)["result"]["acks"][0]["message"] == "no answer in time"
    # one that nobody was told of
    alice.send_json(
        {"jsonrpc": "2.0", "method": "sendMessage", "params": {"to": "x", "payload": {}}}
    )
    until_gone("dave", alice)

    samples = scrape(fresh)
    assert samples["busd_messages_accepted_total"] == 32 + 1 + 1 + 1 + 1 + 2 + 1
    assert samples["busd_messages_unrouted_total"] == 2
    assert acks(samples) == {"ok": 34, "refused": 1, "lost": 1, "timeout": 1, "busy": 1}
    assert samples["busd_messages_unanswered"] == 0
    assert samples["busd_peers"] == 4
    assert samples["busd_connections"] == 5


def test_what_is_not_answered_yet_is_neither_ok_nor_failed(loop: Loop, opened: ExitStack) -> None:
    with open_daemon(loop) as daemon:
        alice, bob = (join_by(daemon, "unix", name, opened) for name in ("alice", "bob"))
        sent = [alice.send_message("bob") for _ in range(3)]
        waiting = [bob.next_message() for _ in sent]
        samples = scrape(daemon)
        assert samples["busd_messages_accepted_total"] == samples["busd_messages_unanswered"] == 3
        assert acks(samples) == {"ok": 0}
        for message in waiting:
            bob.answer(message, {"success": True})
        for request in sent:
            alice.answer_to(request)
        samples = scrape(daemon)
        assert samples["busd_messages_unanswered"] == 0
        assert acks(samples) == {"ok": 3}


def test_refusals_are_counted_by_rule_alone_and_in_batches(
    fresh: Daemon, opened: ExitStack
) -> None:
    alice = join_by(fresh, "unix", "alice", opened)
    no_object = {"to": "bob", "payload": []}
    alice.answer_to(alice.request("no.such.method"))
    alice.answer_to(alice.request("sendMessage", no_object))
    alice.answer_to(alice.request("sendMessage", {"to": "*", "payload": {}}))
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "no.such.method"},
        {"jsonrpc": "2.0", "id": 2, "method": "sendMessage", "params": no_object},
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
    ]
    alice.send_json(batch)
    assert len(alice.next_json()) == 3
    # A message whose sender wants no answer is not told, but counted.
    alice.send_json({"jsonrpc": "2.0", "method": "sendMessage", "params": no_object})
    alice.call("ping")
    samples = scrape(fresh)
    start = "busd_requests_refused_total{rule="
    refused = {name: value for name, value in samples.items() if name.startswith(start)}
    assert refused == {f"{start}method}}": 2, f"{start}params}}": 3, f"{start}address}}": 1}
    assert samples["busd_messages_accepted_total"] == 0  # what is refused was not accepted


def test_the_histogram_of_latencies_is_one(fresh: Daemon, opened: ExitStack) -> None:
    alice, bob = (join_by(fresh, "unix", name, opened) for name in ("alice", "bob"))
    for _ in range(64):
        exchange(alice, bob, "bob")
    samples = scrape(fresh)
    buckets = [
        (float(name.split("le=")[1].rstrip("}")), value)
        for name, value in samples.items()
        if name.startswith("busd_delivery_seconds_bucket")
    ]
    assert buckets == sorted(buckets)  # the edges rise, and with them the counts
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    assert buckets[-1] == (float("inf"), 8)  # one in eight is timed
    assert samples["busd_delivery_seconds_count"] == 8
    assert 0 < samples["busd_delivery_seconds_sum"] < 64


def test_without_an_activity_log_there_are_no_numbers_of_it(loop: Loop, opened: ExitStack) -> None:
    with open_daemon(loop, {"journal.enabled": False}) as daemon:
        alice, bob = (join_by(daemon, "unix", name, opened) for name in ("alice", "bob"))
        for _ in range(16):
            exchange(alice, bob, "bob")
        exchange(alice, bob, "bob", success=False)
        samples = scrape(daemon)
    assert not [name for name in samples if "journal" in name]
    assert acks(samples) == {"ok": 16, "refused": 1}
    assert samples["busd_delivery_seconds_count"] == 2


def test_what_waits_for_the_writer_of_the_log_is_shown(loop: Loop, opened: ExitStack) -> None:
    with open_daemon(loop, {"journal.write_seconds": 3600.0}) as daemon:
        alice = join_by(daemon, "unix", "alice", opened)
        for _ in range(5):
            alice.answer_to(alice.send_message("nobody"))
        assert scrape(daemon)["busd_journal_rows_waiting"] == 5
