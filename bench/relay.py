"""The floor: a relay that speaks just enough of the protocol to carry acked messages.

No validation, no limits, no time-outs, no patterns: what is left is the price of the protocol
itself in Python. Every figure of busd is given as a ratio to this one, from the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import cast

import msgspec
import uvloop

JOIN_BYTES = 4096


class Params(msgspec.Struct):
    """The params of every method the relay knows, merged."""

    to: str = ""
    sender: str = msgspec.field(name="from", default="")
    message_id: str = msgspec.field(name="messageId", default="")
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    client_id: str = msgspec.field(name="clientId", default="")
    address: str = ""


class Envelope(msgspec.Struct):
    """A request or a reply, whichever members it has."""

    id: int
    method: str = ""
    params: Params | None = None
    result: msgspec.Raw = msgspec.Raw()


class Delivery:
    """A `sendMessage` that waits for the answers of its receivers."""

    __slots__ = ("acks", "message_id", "receivers", "request_id", "sender")

    def __init__(
        self, sender: Connection, request_id: int, message_id: str, receivers: int
    ) -> None:
        self.sender = sender
        self.request_id = request_id
        self.message_id = message_id
        self.receivers = receivers
        self.acks: list[bytes] = []


class Relay:
    """Who listens where, and who waits for what."""

    def __init__(self) -> None:
        self.decode = msgspec.json.Decoder(Envelope).decode
        self.routes: dict[str, list[Connection]] = {}
        self.pending: dict[int, Delivery] = {}
        self.last_call_id = 0
        # Connections with something to write: each is flushed once per chunk read.
        self.touched: list[Connection] = []


class Connection(asyncio.Protocol):
    """One connection: lines in, lines out."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.rest = b""
        self.out: list[bytes] = []
        self.addresses: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the connection out of the routes."""
        for address in self.addresses:
            self.relay.routes[address].remove(self)

    def data_received(self, data: bytes) -> None:
        """Handle every whole line of a chunk, then write what came of them."""
        lines = data.split(b"\n")
        if self.rest:
            # Only the first line is joined to what came before: not a copy of the whole chunk.
            lines[0] = self.rest + lines[0]
        self.rest = lines.pop()
        decode = self.relay.decode
        for line in lines:
            message = decode(line)
            if message.params is None:
                self.take_ack(message.id, message.result)
            elif message.method == "sendMessage":
                self.deliver(message.id, message.params)
            else:
                self.join(message.id, message.params)
        self.flush_touched()

    def deliver(self, request_id: int, params: Params) -> None:
        """Hand one message to everyone at its address."""
        relay = self.relay
        receivers = relay.routes[params.to]
        delivery = Delivery(self, request_id, params.message_id, len(receivers))
        # Made once, however many receive it; `+` takes a Raw as it is, `%b` would copy it first.
        tail = (
            f',"method":"processMessage","params":{{"from":"{params.sender}","to":"{params.to}",'
            f'"messageId":"{params.message_id}","payload":'
        ).encode() + params.payload
        for receiver in receivers:
            relay.last_call_id += 1
            relay.pending[relay.last_call_id] = delivery
            receiver.send(b'{"jsonrpc":"2.0","id":%d%b}}\n' % (relay.last_call_id, tail))

    def take_ack(self, call_id: int, ack: bytes) -> None:
        """Note one receiver's answer, and answer the sender after the last one."""
        delivery = self.relay.pending.pop(call_id)
        delivery.acks.append(ack)
        if len(delivery.acks) == delivery.receivers:
            delivery.sender.send(
                b'{"jsonrpc":"2.0","id":%d,"result":{"accepted":true,"messageId":"%b","acks":[%b]}}\n'
                % (delivery.request_id, delivery.message_id.encode(), b",".join(delivery.acks))
            )

    def join(self, request_id: int, params: Params) -> None:
        """Answer `initialize` and `subscribe`: both put the connection at an address."""
        address = params.client_id or params.address
        self.relay.routes.setdefault(address, []).append(self)
        self.addresses.append(address)
        self.send(b'{"jsonrpc":"2.0","id":%d,"result":{"success":true}}\n' % request_id)

    def send(self, line: bytes) -> None:
        """Put a line on the connection, to be written at the end of the chunk."""
        if not self.out:
            self.relay.touched.append(self)
        self.out.append(line)

    def flush_touched(self) -> None:
        """Write each touched connection's lines at once."""
        touched = self.relay.touched
        for connection in touched:
            lines = connection.out
            # Joining copies: long lines cost less as so many buffers of one writev().
            if len(lines[0]) > JOIN_BYTES:
                connection.transport.writelines(lines)
            else:
                connection.transport.write(b"".join(lines))
            lines.clear()
        touched.clear()


async def serve(path: str) -> None:
    """Listen on a Unix socket and on a TCP port until told to stop."""
    loop = asyncio.get_running_loop()
    relay = Relay()
    unix = await loop.create_unix_server(lambda: Connection(relay), path, backlog=4096)
    tcp = await loop.create_server(lambda: Connection(relay), "127.0.0.1", 0, backlog=4096)
    port = tcp.sockets[0].getsockname()[1]
    ready = {"listening": [f"unix:{path}", f"tcp://127.0.0.1:{port}"]}
    print(msgspec.json.encode(ready).decode(), flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    unix.close()
    tcp.close()


def main() -> int:
    """Run the relay."""
    parser = argparse.ArgumentParser(prog="bench.relay", description=serve.__doc__)
    parser.add_argument("path", help="path of the Unix socket")
    uvloop.run(serve(parser.parse_args().path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
