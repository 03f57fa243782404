"""What is measured: the workloads, and which servers and clients each one is run with."""

from __future__ import annotations

import msgspec

from bench.job import Workload
from bench.others import OTHERS, REDIS_SERVERS

W1 = Workload(
    name="W1", title="50 pairs, 1 in flight, 200 B: nothing to batch", pairs=50, in_flight=1
)
W2 = Workload(name="W2", title="1 pair, 64 in flight, 200 B")
W3 = Workload(name="W3", title="50 pairs, 8 in flight, 200 B", pairs=50, in_flight=8)
BIG = Workload(name="4KiB", title="1 pair, 64 in flight, 4 KiB", payload_bytes=4096)
# Eight in flight: 64 would be 4 MiB in one queue, and the limits of the servers would be measured.
HUGE = Workload(name="64KiB", title="1 pair, 8 in flight, 64 KiB", in_flight=8, payload_bytes=65536)
FANOUT = Workload(
    name="fanout", title="1 sender to 100 receivers, per delivery", in_flight=1, receivers=100
)
GROWTH = tuple(
    Workload(name=f"subs{count}", title=f"W2 beside {count:,} subscriptions", subscriptions=count)
    for count in (10, 1_000, 100_000)
)
IDLE = tuple(
    Workload(name=f"idle{count}", title=f"{count:,} idle connections", idle_connections=count)
    for count in (1_000, 10_000)
)
KEPT = Workload(
    name="durable-kept",
    title="nobody is there: acked when stored; 64 in flight, 200 B",
    receivers=0,
    is_durable=True,
)
KEPT_BIG = Workload(
    name="durable-kept-4KiB",
    title="nobody is there: acked when stored; 64 in flight, 4 KiB",
    payload_bytes=4096,
    receivers=0,
    is_durable=True,
)
ACKED = Workload(
    name="durable-acked",
    title="stored, and acked by its consumer; 64 in flight, 200 B",
    is_durable=True,
)

FLOOR = "relay unix"
# The names of clients that are not bare, in the names of rows.
LIBRARIES = {
    "sdk": "SDK",
    "nats-py": "nats-py",
    "jetstream-py": "nats-py",
    "redis-py": "redis-py",
}


class Row(msgspec.Struct, frozen=True):
    """One line of the result: a server, the clients and the way to it, and a workload."""

    server: str
    client: str
    transport: str
    workload: Workload

    @property
    def contender(self) -> str:
        """Server, transport and client, as the tables name them."""
        library = LIBRARIES.get(self.client, "bare clients")
        if self.server in OTHERS:
            return f"{self.server} + {library}"
        way = f"{self.server} {self.transport}"
        return way if self.client == "bus" else f"{way} + {library}"

    @property
    def name(self) -> str:
        """The whole row in one line, which `--only` searches."""
        return f"{self.workload.name} {self.contender}"

    @property
    def needs_fresh_server(self) -> bool:
        """Whether what earlier rows left in the server's memory would falsify this one."""
        return self.varies_little or self.workload.is_durable

    @property
    def varies_little(self) -> bool:
        """Whether a few rounds are enough."""
        return bool(self.workload.idle_connections or self.workload.subscriptions)


# Server, client and transport.
RELAY = ("relay", "bus", "unix")
BUSD = ("busd uvloop", "bus", "unix")
LOGGED = ("busd uvloop+log", "bus", "unix")
UNCOUNTED = ("busd uvloop-metrics", "bus", "unix")
BUSD_WS = ("busd uvloop", "bus", "ws")
TRIO = ("busd trio", "bus", "unix")
NATS = ("nats-server", "nats", "nats")
SDK = ("busd uvloop", "sdk", "unix")
NATS_PY = ("nats-server", "nats-py", "nats")
SDK_TCP = ("busd uvloop", "sdk", "tcp")
LOGGED_SDK = ("busd uvloop+log", "sdk", "unix")
JETSTREAM = ("jetstream", "jetstream-py", "nats")
JETSTREAM_ALWAYS = ("jetstream+always", "jetstream-py", "nats")
REDIS = tuple((server, "redis-py", "unix") for server in REDIS_SERVERS)

MAIN = (RELAY, BUSD, NATS)
LOOPS = (RELAY, BUSD, ("busd asyncio", "bus", "unix"), TRIO, NATS)
QUICK = (RELAY, BUSD, LOGGED, BUSD_WS, TRIO, NATS, SDK, NATS_PY)
# Rows that a target compares stand together: what else the machine does changes by the second.
EVERY = (
    RELAY,
    BUSD,
    UNCOUNTED,
    LOGGED,
    TRIO,
    BUSD_WS,
    ("relay", "bus", "tcp"),
    ("busd uvloop", "bus", "tcp"),
    ("busd trio", "bus", "tcp"),
    ("busd trio", "bus", "ws"),
    *(("busd asyncio", "bus", transport) for transport in ("unix", "tcp", "ws")),
    NATS,
    SDK,
    # nats-py has only TCP to go by: this row is the like-for-like one.
    SDK_TCP,
    NATS_PY,
)
STORING = (SDK, JETSTREAM, JETSTREAM_ALWAYS)
DURABLE = (BUSD, SDK_TCP, *STORING, *REDIS)
EVERY_DURABLE = (
    *DURABLE,
    LOGGED_SDK,
    ("jetstream", "jetstream", "nats"),
    ("jetstream+always", "jetstream", "nats"),
)


def make_plan() -> list[Row]:
    """Every row, in the order in which a round goes through them."""
    plan = {W2: EVERY, W3: EVERY, W1: LOOPS}
    plan |= {BIG: MAIN, HUGE: MAIN, FANOUT: LOOPS}
    plan |= {KEPT: EVERY_DURABLE, KEPT_BIG: (*STORING, *REDIS), ACKED: DURABLE}
    plan |= dict.fromkeys(GROWTH, MAIN)
    plan |= dict.fromkeys(IDLE, LOOPS)
    return [
        Row(*contender, workload)
        for workload, contenders in plan.items()
        for contender in contenders
    ]


def choose_rows(plan: list[Row], only: list[str], quick: bool) -> list[Row]:
    """The rows whose name holds one of these texts, and the floor that each is compared to."""
    if not only:
        return [row for row in plan if is_quick(row)] if quick else plan
    wanted = [row for row in plan if any(text.lower() in row.name.lower() for text in only)]
    floors = {row.workload for row in wanted}
    return [
        row for row in plan if row in wanted or (row.contender == FLOOR and row.workload in floors)
    ]


def is_quick(row: Row) -> bool:
    """Whether `--quick` measures this row when it is free to choose."""
    contender = (row.server, row.client, row.transport)
    if row.workload in (W2, W3):
        return contender in QUICK
    return contender in MAIN and row.workload in (W1, FANOUT, IDLE[0])
