"""Bare clients of a bus (the relay or busd): raw sockets and requests of ready-made bytes.

They do as little as a client can, so that the server is what is measured: one decode of the few
members that matter per message, one write per chunk read.
"""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from bench.framing import Framing
from bench.job import Job, LoadError, Sample, Workload
from bench.link import Link
from bench.party import Party, SendingParty, measure_traffic
from bench.payload import ACK, BOX_MESSAGES, make_payload
from bench.window import Window

BYSTANDERS = 100


class Ack(msgspec.Struct):
    """One receiver's answer, as the sender hears it."""

    success: bool


class Receipt(msgspec.Struct):
    """The result of `sendMessage`."""

    acks: list[Ack]


class Answer(msgspec.Struct):
    """The answer to a `sendMessage`."""

    id: int
    result: Receipt | None = None
    error: msgspec.Raw = msgspec.Raw()


class Mail(msgspec.Struct):
    """What became of a message that was stored; one that was not has no such member."""

    id: int


class DurableReceipt(Receipt):
    """The result of a durable `sendMessage`."""

    mail: Mail


class DurableAnswer(msgspec.Struct):
    """The answer to such a `sendMessage`."""

    id: int
    result: DurableReceipt | None = None


class KeptReceipt(DurableReceipt):
    """The result of one to somebody who is not there."""

    undelivered: Literal["kept"]


class KeptAnswer(msgspec.Struct):
    """The answer to such a `sendMessage`."""

    id: int
    result: KeptReceipt | None = None


class Call(msgspec.Struct):
    """A `processMessage`; its id goes back as it came."""

    id: msgspec.Raw
    method: str


class Sender(SendingParty):
    """Keeps a number of messages in flight to one address."""

    answer_type: type[Answer | DurableAnswer | KeptAnswer] = Answer

    def __init__(self, window: Window, framing: Framing, name: str, to: str) -> None:
        super().__init__(window)
        self.framing = framing
        self.name = name
        self.to = to
        self.receivers = window.job.workload.receivers
        self.decode = msgspec.json.Decoder(self.answer_type).decode
        self.template = self.make_template(to)
        self.number = 0
        self.sent_at: dict[int, float] = {}

    def make_template(self, to: str) -> bytes:
        """Return a request as bytes for `%`: the number of the message goes in twice."""
        workload, name = self.window.job.workload, self.name.encode()
        delivery = b'"delivery":{"durable":true},' if workload.is_durable else b""
        return (
            b'{"jsonrpc":"2.0","id":%%d,"method":"sendMessage","params":{"from":"%b","to":"%b",'
            b'"messageId":"%b-%%d",%b"payload":%b}}'
            % (name, to.encode(), name, delivery, make_payload(workload.payload_bytes))
        )

    def send(self, count: int) -> None:
        """Send that many messages in one write."""
        now = time.perf_counter()
        wrap, template = self.framing.wrap, self.template
        out: list[bytes] = []
        for number in range(self.number, self.number + count):
            self.sent_at[number] = now
            out.append(wrap(template % (number, number)))
        self.number += count
        self.window.sent += count
        self.transport.write(b"".join(out))

    def take(self, chunk: bytes) -> None:
        """Check the answers, and send as many messages again."""
        now = time.perf_counter()
        self.window.reads += 1
        frames = self.framing.feed(chunk)
        decode, sent_at, latencies = self.decode, self.sent_at, self.window.latencies
        for frame in frames:
            answer = decode(frame)
            receipt = answer.result
            if receipt is None or len(receipt.acks) != self.receivers:
                raise LoadError(f"not delivered: {frame[:200]!r}")
            for ack in receipt.acks:
                if not ack.success:
                    raise LoadError(f"failed ack: {frame[:200]!r}")
            latencies.append(now - sent_at.pop(answer.id))
        if self.window.is_open and frames:
            self.send(len(frames))


class DurableSender(Sender):
    """Keeps a number of durable messages in flight; an answer without `mail` ends the run."""

    answer_type = DurableAnswer


class KeptSender(Sender):
    """Keeps a number of durable messages in flight to addresses where nobody is.

    An answer without `"undelivered": "kept"` ends the run.
    """

    answer_type = KeptAnswer

    def send(self, count: int) -> None:
        """Send that many messages in one write, to the next address when one has enough."""
        self.template = self.make_template(f"{self.to}:{self.number // BOX_MESSAGES}")
        super().send(count)


class Receiver(Party):
    """Answers every message with success."""

    def __init__(self, window: Window, framing: Framing) -> None:
        super().__init__(window)
        self.framing = framing
        self.decode = msgspec.json.Decoder(Call).decode

    def take(self, chunk: bytes) -> None:
        """Answer a chunk of messages in one write."""
        decode, wrap = self.decode, self.framing.wrap
        out: list[bytes] = []
        for frame in self.framing.feed(chunk):
            call = decode(frame)
            if call.method != "processMessage":
                raise LoadError(f"unexpected call: {frame[:200]!r}")
            out.append(wrap(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (call.id, ACK)))
        self.window.handled += len(out)
        if out:
            self.transport.write(b"".join(out))


async def run_load(job: Job) -> Sample:
    """Join, start the traffic, and measure it."""
    window = Window(job)
    bystanders = open_bystanders(job)
    senders = [await open_pair(window, pair) for pair in range(job.workload.pairs)]
    sample = await measure_traffic(window, senders)
    for link in bystanders:
        link.close()
    return sample


async def open_pair(window: Window, pair: int) -> Sender:
    """Connect a sender, and the receivers at the address it sends to."""
    address, name, to = window.job.address, f"bench:s{pair}", f"bench:r{pair}"
    for number in range(window.job.workload.receivers):
        link = Link(address, f"bench:r{pair}:{number}")
        link.subscribe(to)
        await Receiver(window, link.framing).attach(link.socket)
    link = Link(address, name)
    sender = choose_sender(window.job.workload)(window, link.framing, name, to)
    await sender.attach(link.socket)
    return sender


def choose_sender(workload: Workload) -> type[Sender]:
    """The kind of sender that checks the answers of this workload."""
    if not workload.is_durable:
        return Sender
    return DurableSender if workload.receivers else KeptSender


def open_bystanders(job: Job) -> list[Link]:
    """Connect peers that hold the workload's subscriptions, three in ten of them prefixes."""
    count = min(job.workload.subscriptions, BYSTANDERS)
    links: list[Link] = []
    for peer in range(count):
        numbers = range(peer, job.workload.subscriptions, count)
        link = Link(job.address, f"idle:{peer}")
        link.subscribe(*(f"x:{n}:*" if n % 10 < 3 else f"x:{n}" for n in numbers))
        links.append(link)
    return links
