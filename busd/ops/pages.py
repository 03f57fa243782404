"""The pages of the bus, `/metrics`, `/livez` and `/readyz`, and by which names they are shown."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from busd import __version__
from busd.bus.mailboxes import MAIL_EVENTS
from busd.bus.tally import SECONDS
from busd.ops.running import RunningBus
from busd.settings.config import Settings
from busd.wire.bus_address import parse_bus_address
from busd.wire.http_gate import Page

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Pages:
    """The pages of the bus: answered by the router loop itself, or not at all."""

    def __init__(self, daemon: RunningBus) -> None:
        self._daemon = daemon
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BusCollector(daemon))
        self.by_path = {
            "/metrics": self.metrics,
            "/livez": lambda: Page(200, "ok\n"),
            "/readyz": self.readiness,
        }

    def metrics(self) -> Page:
        return Page(200, generate_latest(self._registry).decode(), _CONTENT_TYPE)

    def readiness(self) -> Page:
        if self._daemon.bus.is_stopping:
            return Page(503, "stopping\n")
        return Page(200, "ok\n")


def host_names(settings: Settings) -> list[str]:
    """Return the host names under which pages are served, besides IP addresses."""
    listening = [parse_bus_address(text).host for text in settings.listen]
    return [*filter(None, listening), *settings.allowed_hosts]


class BusCollector(Collector):
    """Creates metrics from plain counts on request, so that messages pay nothing for them."""

    def __init__(self, daemon: RunningBus) -> None:
        self._daemon = daemon

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from self._gauges()
        yield from self._journal()
        yield from self._mail()
        yield from self._plugins()
        yield self._latency()

    def _counters(self) -> Iterator[Metric]:
        bus = self._daemon.bus
        tally = bus.tally
        waiting = bus.unanswered
        handed_over = tally.handed_over(bus.last_call_id)
        succeeded = handed_over - sum(tally.failed.values()) - waiting
        yield CounterMetricFamily(
            "busd_messages_accepted",
            "Messages taken from senders.",
            value=tally.accepted(bus.last_call_id),
        )
        yield CounterMetricFamily(
            "busd_messages_unrouted", "Messages nobody was subscribed to.", value=tally.unrouted
        )
        acks = CounterMetricFamily(
            "busd_acks_received", "Acks by outcome, one for each addressee.", labels=["outcome"]
        )
        acks.add_metric(["ok"], succeeded)
        for outcome, count in sorted(tally.failed.items()):
            acks.add_metric([outcome], count)
        yield acks
        refusals = CounterMetricFamily(
            "busd_requests_refused", "Requests answered with an error, by rule.", labels=["rule"]
        )
        for rule, count in sorted(tally.refused.items()):
            refusals.add_metric([rule], count)
        yield refusals
        loops = CounterMetricFamily(
            "busd_loops_found", "Loops of messages, each once a minute, by rule.", labels=["rule"]
        )
        for rule, count in sorted(bus.loops.found.items()):
            loops.add_metric([rule], count)
        yield loops
        looped = CounterMetricFamily(
            "busd_looping_messages_refused",
            "Messages refused because they are in a loop, those of plugins included, by rule.",
            labels=["rule"],
        )
        for rule, count in sorted(bus.loops.refused.items()):
            looped.add_metric([rule], count)
        yield looped

    def _gauges(self) -> Iterator[Metric]:
        daemon = self._daemon
        connections = daemon.connections.open
        gauges = {
            "busd_peers": ("Peers that have initialized.", len(daemon.bus.remote_peers)),
            "busd_connections": ("Open connections.", len(connections)),
            "busd_messages_unanswered": (
                "Messages handed over and not answered yet.",
                daemon.bus.unanswered,
            ),
            "busd_peers_clogged": (
                "Peers that do not read what waits for them.",
                sum(connection.is_clogged for connection in connections),
            ),
            "busd_unread_bytes": (
                "Bytes that wait for peers to read them.",
                sum(connection.transport.get_write_buffer_size() for connection in connections),
            ),
            "busd_loop_lag_seconds": (
                "How late the last round of the sweeper came.",
                daemon.lag_seconds,
            ),
        }
        for name, (about, value) in gauges.items():
            yield GaugeMetricFamily(name, about, value=value)
        info = GaugeMetricFamily("busd_info", "The version that runs.", labels=["version", "loop"])
        info.add_metric([__version__, daemon.settings.loop], 1)
        yield info

    def _mail(self) -> Iterator[Metric]:
        mailboxes = self._daemon.bus.mailboxes
        if mailboxes is None:
            return
        ends = CounterMetricFamily(
            "busd_mail", "Messages that were kept, by what became of them.", labels=["event"]
        )
        for event in MAIL_EVENTS:
            ends.add_metric([event], mailboxes.counts[event])
        yield ends
        totals = mailboxes.store.totals
        gauges = {
            "busd_mail_waiting": ("Messages in all mailboxes.", totals.count),
            "busd_mail_waiting_bytes": ("Bytes of their payloads.", totals.bytes),
            "busd_mail_dead_letters": ("Messages that were given up.", totals.dead),
            "busd_mail_unwritten": ("Operations that wait for the disk.", mailboxes.store.waiting),
            "busd_mail_failing": ("1 if the last write failed.", mailboxes.store.is_failing),
        }
        for name, (about, value) in gauges.items():
            yield GaugeMetricFamily(name, about, value=value)

    def _journal(self) -> Iterator[Metric]:
        journal = self._daemon.journal
        if journal is None:
            return
        yield GaugeMetricFamily(
            "busd_journal_rows_waiting",
            "Deliveries that wait to be written to the activity log.",
            value=journal.backlog_rows,
        )
        yield CounterMetricFamily(
            "busd_journal_rows_dropped",
            "Deliveries that were dropped from the activity log.",
            value=journal.dropped,
        )

    def _plugins(self) -> Iterator[Metric]:
        handled = CounterMetricFamily(
            "busd_plugin_handled", "Messages and calls a plugin has answered.", labels=["plugin"]
        )
        faults = CounterMetricFamily(
            "busd_plugin_faults", "What was blamed on a plugin.", labels=["plugin"]
        )
        counts: dict[str, tuple[int, int]] = {}
        for each in self._daemon.plugins.describe():
            so_far = counts.get(each.name, (0, 0))  # bad ones may have the name of a good one
            counts[each.name] = (so_far[0] + each.handled, so_far[1] + each.faults)
        for name, (good, bad) in counts.items():
            handled.add_metric([name], good)
            faults.add_metric([name], bad)
        yield handled
        yield faults

    def _latency(self) -> Metric:
        tally = self._daemon.bus.tally
        total, buckets = 0, []
        for edge, count in zip((*map(str, SECONDS), "+Inf"), tally.latencies, strict=True):
            total += count
            buckets.append((edge, total))
        latency = HistogramMetricFamily(
            "busd_delivery_seconds", "From hand-over to ack; one message in eight is timed."
        )
        latency.add_metric([], buckets, sum_value=tally.latency_sum)
        return latency
