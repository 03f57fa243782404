"""Bare clients of JetStream: publish with ack, in the style of `load_nats`."""

from __future__ import annotations

import time

import msgspec

from bench.job import Job, LoadError, Sample
from bench.load_nats import NatsLines, open_nats, take_control
from bench.party import SendingParty, measure_traffic
from bench.payload import BOX_MESSAGES, make_payload
from bench.window import Window

STREAM = {"name": "bench", "subjects": ["bench.*"], "storage": "file"}
CREATE = b"PUB $JS.API.STREAM.CREATE.bench %b %d\r\n%b\r\n"
INBOX = "_INBOX.sender"


class Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What JetStream answers when a message is stored."""

    stream: str
    seq: int


class Sender(SendingParty):
    """Keeps a number of messages in flight to a stream that nobody reads."""

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.framing = NatsLines()
        self.decode = msgspec.json.Decoder(Stored).decode
        self.number = 0
        self.answering = 0
        self.sent_at: dict[int, float] = {}

    def make_template(self, box: int) -> bytes:
        """Return a request as bytes for `%` with the number of the message."""
        payload = make_payload(self.window.job.workload.payload_bytes)
        head = f"PUB bench.{box} {INBOX}.%d {len(payload)}\r\n"
        return head.encode() + payload + b"\r\n"

    def send(self, count: int) -> None:
        """Send that many messages in one write, to the next subject when one has enough."""
        now = time.perf_counter()
        template = self.make_template(self.number // BOX_MESSAGES)
        numbers = range(self.number, self.number + count)
        self.sent_at.update(dict.fromkeys(numbers, now))
        self.number += count
        self.window.sent += count
        self.transport.write(b"".join([template % number for number in numbers]))

    def take(self, chunk: bytes) -> None:
        """Check the acks, and send as many messages again."""
        now = time.perf_counter()
        self.window.reads += 1
        answered = 0
        for line in self.framing.feed(chunk):
            if line.startswith(b"{"):
                self.decode(line)
                self.window.latencies.append(now - self.sent_at.pop(self.answering))
                answered += 1
            elif line.startswith(b"MSG "):
                # MSG <inbox>.<number> <sid> <size>
                self.answering = int(line.split(b" ", 2)[1].rpartition(b".")[2])
            else:
                take_control(self, line)
        if self.window.is_open and answered:
            self.send(answered)


async def run_load(job: Job) -> Sample:
    """Create the stream, start the traffic, and measure it."""
    window = Window(job)
    create_stream(job.address)
    sender = Sender(window)
    await sender.attach(open_nats(job.address, "sender", [f"{INBOX}.*"]))
    return await measure_traffic(window, [sender])


def create_stream(address: str) -> None:
    """Create the stream."""
    connection = open_nats(address, "creator", ["_INBOX.creator"])
    config = msgspec.json.encode(STREAM)
    connection.sendall(CREATE % (b"_INBOX.creator", len(config), config))
    reply = b""
    while not reply.endswith(b"}\r\n"):
        chunk = connection.recv(65536)
        reply += chunk
        if not chunk or b'"error"' in reply:
            raise LoadError(f"JetStream refused: {reply[-200:]!r}")
    connection.close()
