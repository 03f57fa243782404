"""The run: rounds over all rows, each sample taken by a load generator in its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import msgspec

from bench.disk import find_directory
from bench.job import Job, Sample
from bench.meter import confine, split_cores
from bench.plan import Row
from bench.progress import Progress
from bench.results import Outcome, Results
from bench.servers import ROOT, Server, ServerError

GENERATOR_SECONDS = 120.0
# Memory and growth rows start a server each and vary little: more rounds would only take long.
FRESH_ROUNDS = 3


class Pace(msgspec.Struct, frozen=True):
    """How many rounds there are, and how long a sample takes."""

    rounds: int
    warm_up_seconds: float
    measure_seconds: float


class SampleError(Exception):
    """A load generator reported a fault."""


class Runner:
    """Takes all samples of a plan; servers live from their first row to the end of the run."""

    def __init__(self, rows: list[Row], pace: Pace) -> None:
        self.pace = pace
        self.results = Results(rows)
        self.servers: dict[str, Server] = {}
        self.schedule = [
            (number, outcome)
            for number in range(pace.rounds)
            for outcome in self.results.outcomes
            if number < FRESH_ROUNDS or not outcome.row.varies_little
        ]
        self.progress = Progress(len(self.schedule))

    def run(self) -> Results:
        """Go through all rounds, and stop every server at the end, whatever happens."""
        try:
            for number, outcome in self.schedule:
                self.take_sample(number, outcome)
        finally:
            self.stop_servers()
            self.progress.close()
        return self.results

    def take_sample(self, number: int, outcome: Outcome) -> None:
        """Take one sample, or note why there is none."""
        row = outcome.row
        what = f"round {number + 1}/{self.pace.rounds}: {row.name}"
        self.progress.begin(what)
        try:
            sample = self.measure(row)
        except (SampleError, ServerError) as fault:
            # The server may be in any state now: the next row gets a new one.
            self.drop_server(row.server)
            outcome.faults.append(f"round {number + 1}: {fault}")
            self.progress.end(f"{what}: FAILED: {fault}")
            return
        outcome.samples[number] = sample
        self.progress.end(f"{what}: {describe(sample)}")

    def measure(self, row: Row) -> Sample:
        """Run the load of one row against its server."""
        if not row.needs_fresh_server:
            if row.server not in self.servers:
                self.servers[row.server] = Server(row.server)
            return self.run_generator(row, self.servers[row.server])
        server = Server(row.server, find_directory() if row.workload.is_durable else None)
        try:
            return self.run_generator(row, server)
        finally:
            server.stop()

    def run_generator(self, row: Row, server: Server) -> Sample:
        """Start a load generator for one sample and wait for it."""
        server_cores, cores = choose_cores(row)
        confine(server.pid, server_cores)
        job = Job(
            client=row.client,
            address=server.address(row.transport),
            server_pid=server.pid,
            workload=row.workload,
            warm_up_seconds=self.pace.warm_up_seconds,
            measure_seconds=self.pace.measure_seconds,
            cores=cores,
        )
        generator = spawn_generator(msgspec.json.encode(job))
        if not server.is_alive():
            raise ServerError(f"{server.name} died: {server.last_words()}")
        if generator.returncode:
            words = generator.stderr.decode(errors="replace").strip().splitlines()
            raise SampleError(words[-1] if words else f"exit code {generator.returncode}")
        return msgspec.json.decode(generator.stdout.splitlines()[-1], type=Sample)

    def drop_server(self, name: str) -> None:
        """Stop a server that is no longer to be trusted."""
        if server := self.servers.pop(name, None):
            server.stop()

    def stop_servers(self) -> None:
        """Stop all servers; a second Ctrl-C cannot leave one behind."""
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for name, server in list(self.servers.items()):
            if not server.is_alive():
                self.results.deaths.append(f"{name} died after its last row: {server.last_words()}")
            self.drop_server(name)
        signal.signal(signal.SIGINT, handler)


def choose_cores(row: Row) -> tuple[set[int], set[int]]:
    """Where a server and its generator may run: apart for bare clients of a bus, else anywhere.

    For durable messages always anywhere: all the servers have a thread of their own for the disk.
    """
    # In turn on one core the relay costs 2.8 µs per W2 message, on two cores 3.5, and the scheduler
    # chooses anew for each sample. But nats-server uses all cores by nature, and end to end the
    # rate counts, too: on a busy machine a confined process cannot go where there is room.
    everywhere = os.sched_getaffinity(0)
    is_apart = row.client == "bus" and not row.workload.is_durable
    return split_cores() if is_apart else (everywhere, everywhere)


def spawn_generator(job: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a load generator to its end."""
    try:
        return subprocess.run(
            [sys.executable, "-m", "bench.load"],
            input=job,
            capture_output=True,
            cwd=ROOT,
            timeout=GENERATOR_SECONDS,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise SampleError(f"the generator did not end in {GENERATOR_SECONDS:g} s") from None


def describe(sample: Sample) -> str:
    """The figure of a sample for the progress line."""
    if sample.kib_per_connection:
        return f"{sample.kib_per_connection:.1f} KiB per connection"
    return f"{sample.server_us:.2f} µs, {sample.acked_per_second:,.0f}/s"
