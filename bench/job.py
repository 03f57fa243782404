"""What the runner asks of a load generator and what it hears back, as JSON on a pipe."""

from __future__ import annotations

import msgspec


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of traffic; each sender keeps `in_flight` messages unanswered."""

    name: str
    title: str
    pairs: int = 1
    in_flight: int = 64
    payload_bytes: int = 200
    # How many receive each message: more than one is a fan-out, and has one pair. 0: nobody is
    # there, and the message is kept.
    receivers: int = 1
    # Whether each message is to be on disk before its ack. Such a workload has one pair.
    is_durable: bool = False
    # Subscriptions of bystanders that match none of the messages.
    subscriptions: int = 0
    # Connections that do nothing; when set, memory is measured instead of traffic.
    idle_connections: int = 0


class Job(msgspec.Struct, frozen=True):
    """One sample to take: this workload, with these clients, against that server."""

    client: str
    address: str
    server_pid: int
    workload: Workload
    warm_up_seconds: float
    measure_seconds: float
    # Where the generator may run.
    cores: set[int]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one sample measured; times in µs are per acked delivery, latencies per message."""

    server_us: float = 0.0
    client_us: float = 0.0
    acked_per_second: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    acked: int = 0
    seconds: float = 0.0
    # Acked messages per chunk that a bare sender read: batching makes messages cheaper.
    acked_per_read: float = 0.0
    kib_per_connection: float = 0.0


class LoadError(Exception):
    """The traffic did not go as it must: a failed ack, a lost message, a wrong count."""
