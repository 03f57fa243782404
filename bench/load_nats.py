"""Bare clients of nats-server: request and reply, in the style of `load_bus`."""

from __future__ import annotations

import socket
import time

from bench.job import Job, LoadError, Sample
from bench.link import open_socket
from bench.load_bus import BYSTANDERS
from bench.party import Party, SendingParty, measure_traffic
from bench.payload import ACK, make_payload
from bench.window import Window

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"echo":true,"protocol":0,"name":"%b"}\r\n'


def open_nats(address: str, name: str, subjects: list[str]) -> socket.socket:
    """Connect, subscribe to these subjects, and wait until the server has taken note."""
    connection = open_socket(address)
    lines = [b"SUB %b %d\r\n" % (subject.encode(), sid) for sid, subject in enumerate(subjects, 1)]
    connection.sendall(CONNECT % name.encode() + b"".join(lines) + b"PING\r\n")
    reply = b""
    while b"\r\nPONG\r\n" not in reply:
        chunk = connection.recv(65536)
        reply += chunk
        if not chunk or b"-ERR" in reply:
            raise LoadError(f"nats-server refused: {reply[-200:]!r}")
    return connection


class NatsLines:
    """Cuts the stream into lines; our bodies hold no line ends, so a body is a line, too."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        lines = (self.rest + chunk if self.rest else chunk).split(b"\r\n")
        self.rest = lines.pop()
        return lines


class Sender(SendingParty):
    """Keeps a number of requests in flight to one subject."""

    def __init__(self, window: Window, inbox: str, to: str) -> None:
        super().__init__(window)
        self.framing = NatsLines()
        workload = window.job.workload
        self.receivers = workload.receivers
        payload = make_payload(workload.payload_bytes)
        self.template = b"PUB %b %b.%%d %d\r\n%b\r\n" % (
            to.encode(),
            inbox.encode(),
            len(payload),
            payload,
        )
        self.number = 0
        self.answering = 0
        self.sent_at: dict[int, float] = {}
        self.missing: dict[int, int] = {}

    def send(self, count: int) -> None:
        """Send that many requests in one write."""
        now = time.perf_counter()
        template = self.template
        out: list[bytes] = []
        for number in range(self.number, self.number + count):
            self.sent_at[number] = now
            self.missing[number] = self.receivers
            out.append(template % number)
        self.number += count
        self.window.sent += count
        self.transport.write(b"".join(out))

    def take(self, chunk: bytes) -> None:
        """Check the replies, and send a request for each one that is complete."""
        now = time.perf_counter()
        self.window.reads += 1
        missing, answered = self.missing, 0
        for line in self.framing.feed(chunk):
            if line == ACK:
                left = missing.pop(self.answering) - 1
                if left:
                    missing[self.answering] = left
                else:
                    self.window.latencies.append(now - self.sent_at.pop(self.answering))
                    answered += 1
            elif line.startswith(b"MSG "):
                # MSG <inbox>.<number> <sid> <size>
                self.answering = int(line.split(b" ", 2)[1].rpartition(b".")[2])
            else:
                take_control(self, line)
        if self.window.is_open and answered:
            self.send(answered)


class Receiver(Party):
    """Replies to every request with success."""

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.framing = NatsLines()
        self.reply_to = b""

    def take(self, chunk: bytes) -> None:
        """Reply to a chunk of requests in one write."""
        out: list[bytes] = []
        for line in self.framing.feed(chunk):
            if line.startswith(b"{"):
                out.append(b"PUB %b %d\r\n%b\r\n" % (self.reply_to, len(ACK), ACK))
            elif line.startswith(b"MSG "):
                # MSG <subject> <sid> <reply-to> <size>
                self.reply_to = line.split(b" ")[3]
            else:
                take_control(self, line)
        self.window.handled += len(out)
        if out:
            self.transport.write(b"".join(out))


def take_control(party: Party, line: bytes) -> None:
    """Answer the server's own ping; anything else is a fault."""
    if line != b"PING":
        raise LoadError(f"unexpected line: {line[:200]!r}")
    party.transport.write(b"PONG\r\n")


async def run_load(job: Job) -> Sample:
    """Connect, start the traffic, and measure it."""
    window = Window(job)
    bystanders = open_bystanders(job)
    senders = [await open_pair(window, pair) for pair in range(job.workload.pairs)]
    sample = await measure_traffic(window, senders)
    for bystander in bystanders:
        bystander.close()
    return sample


async def open_pair(window: Window, pair: int) -> Sender:
    """Connect a sender, and the receivers of the subject it sends to."""
    address, inbox, to = window.job.address, f"_INBOX.s{pair}", f"bench.r{pair}"
    for _ in range(window.job.workload.receivers):
        await Receiver(window).attach(open_nats(address, "receiver", [to]))
    sender = Sender(window, inbox, to)
    await sender.attach(open_nats(address, "sender", [f"{inbox}.*"]))
    return sender


def open_bystanders(job: Job) -> list[socket.socket]:
    """Connect clients that hold the workload's subscriptions, three in ten with wildcards."""
    count = min(job.workload.subscriptions, BYSTANDERS)
    links: list[socket.socket] = []
    for peer in range(count):
        numbers = range(peer, job.workload.subscriptions, count)
        subjects = [f"x.{n}.>" if n % 10 < 3 else f"x.{n}" for n in numbers]
        links.append(open_nats(job.address, "bystander", subjects))
    return links
