"""The measured stretch of a run: warm up, measure, wait for the last answers, check."""

from __future__ import annotations

import asyncio
import time

from bench.job import Job, LoadError, Sample
from bench.meter import read_cpu_seconds

DRAIN_SECONDS = 15.0


class Mark:
    """The readings at one end of the measured stretch."""

    def __init__(self, server_pid: int, acked: int, reads: int) -> None:
        self.time = time.perf_counter()
        self.server_cpu = read_cpu_seconds(server_pid)
        self.client_cpu = time.process_time()
        self.acked = acked
        self.reads = reads


class Window:
    """Counts of one run; senders send while `is_open` and note every answer."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.is_open = True
        self.sent = 0
        self.handled = 0
        self.reads = 0
        # Seconds from send to answer, one for each acked message.
        self.latencies: list[float] = []
        self.fault = ""

    def fail(self, fault: str) -> None:
        """Note the first fault; the run ends with it."""
        self.fault = self.fault or fault
        self.is_open = False

    async def run(self) -> Sample:
        """Let the senders run, and give back what the measured stretch cost."""
        await asyncio.sleep(self.job.warm_up_seconds)
        first = Mark(self.job.server_pid, len(self.latencies), self.reads)
        await asyncio.sleep(self.job.measure_seconds)
        last = Mark(self.job.server_pid, len(self.latencies), self.reads)
        self.is_open = False
        await self.drain()
        self.check()
        return self.measure(first, last)

    async def drain(self) -> None:
        """Wait until every message sent has been answered."""
        deadline = time.perf_counter() + DRAIN_SECONDS
        while len(self.latencies) < self.sent and not self.fault:
            if time.perf_counter() > deadline:
                break
            await asyncio.sleep(0.005)

    def check(self) -> None:
        """Refuse a run in which anything was lost, refused or handled twice."""
        if self.fault:
            raise LoadError(self.fault)
        acked = len(self.latencies)
        if acked != self.sent:
            raise LoadError(f"{self.sent} messages sent, but {acked} acked")
        expected = acked * self.job.workload.receivers
        if self.handled != expected:
            raise LoadError(f"{expected} deliveries acked, but {self.handled} handled")

    def measure(self, first: Mark, last: Mark) -> Sample:
        """Turn the readings at both ends into costs per delivery."""
        acked = last.acked - first.acked
        if not acked:
            raise LoadError("no message was acked in the measured stretch")
        deliveries = acked * max(self.job.workload.receivers, 1)
        latencies = sorted(self.latencies[first.acked : last.acked])
        return Sample(
            server_us=(last.server_cpu - first.server_cpu) / deliveries * 1e6,
            client_us=(last.client_cpu - first.client_cpu) / deliveries * 1e6,
            acked_per_second=deliveries / (last.time - first.time),
            p50_us=latencies[acked // 2] * 1e6,
            p99_us=latencies[acked * 99 // 100] * 1e6,
            acked=acked,
            seconds=last.time - first.time,
            acked_per_read=acked / max(last.reads - first.reads, 1),
        )
