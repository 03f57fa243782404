"""The verbs that talk over a running bus: send, listen, call, status, describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from busd.errors import BusdError, NoAnswer
from busd.ops.output import harmless_json, print_json, print_table, printable

if TYPE_CHECKING:
    from busd.bus.message import Ack, Receipt
    from busd.client.client import Client
    from busd.client.incoming import Incoming

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def bus_options(function: F) -> F:
    """Add what every verb has: where the bus is, and how to print."""
    where = click.option("--address", "-a", metavar="ADDR", help="Where the bus is.")
    how = click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line.")
    return where(how(function))


def with_client(
    address: str | None,
    talk: Callable[[Client], Awaitable[T]],
    name: str | None = None,
    timeout: float | None = None,
    use_uvloop: bool = True,
) -> T:
    """Run a conversation with the bus to its end."""
    import anyio

    from busd.client.client import Client

    options: dict[str, Any] = {} if timeout is None else {"timeout_seconds": timeout}
    options["info"] = {"name": "busd command line", "pid": os.getpid()}

    async def run() -> T:
        async with Client(name or _own_name(), address=address, **options) as bus:
            return await talk(bus)

    return anyio.run(run, backend_options={"use_uvloop": use_uvloop})


def _own_name() -> str:
    return f"cli:{os.getpid()}"


def _parse_object(text: str, what: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as problem:
        raise click.UsageError(f"{what} must be a JSON object: {problem}") from None


@click.command()
@click.argument("to")
@click.argument("text", required=False)
@click.option("--type", "kind", default="tg_message", show_default=True, help="Payload type.")
@click.option("--from", "sender", metavar="ADDRESS", help="Speak as this address.")
@click.option("--payload", metavar="JSON", help="The whole payload, instead of TEXT.")
@click.option("--wait", "-w", is_flag=True, help="Wait for the acks and print them.")
@click.option("--timeout", type=click.FloatRange(min=0.01), metavar="S", help="Wait at most.")
@bus_options
def send(
    to: str,
    text: str | None,
    kind: str,
    sender: str | None,
    payload: str | None,
    wait: bool,
    timeout: float | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Send a message TO an address; TEXT of - is read from standard input.

    \b
    Examples:
      busd send agent:bob "hello" --wait
      git diff | busd send agent:reviewer - --wait --timeout 120
      busd send system:spawn --payload '{"type": "ping", "content": {}}'
    """
    if (text is None) == (payload is None):
        raise click.UsageError("give either TEXT (or - for standard input) or --payload")

    from busd.bus.address import check_address

    speaker = sender or _own_name()
    check_address(to)
    check_address(speaker)
    # Standard input is read to its end before we connect.
    body = _body(kind, sender, text) if payload is None else _parse_object(payload, "--payload")

    async def talk(bus: Client) -> None:
        if wait:
            receipt = await bus.send(to, body, sender=speaker)
            _print_receipt(receipt, to, as_json)
            return
        receipt = await bus.post(to, body, sender=speaker)
        if as_json:
            print_json(receipt)
        else:
            click.echo(receipt.message_id)
        _check_receipt(receipt, to)

    with_client(address, talk, timeout=timeout)


def _body(kind: str, sender: str | None, text: str | None) -> dict[str, Any]:
    words = sys.stdin.read() if text == "-" else text
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    speaker = sender or _own_name()
    content = {"text": words, "senderId": speaker}
    if sender is None:
        content["channel"] = "terminal"  # of anybody else the address says it
    return {"type": kind, "from": speaker, "timestamp": now, "content": content}


def _print_receipt(receipt: Receipt, to: str, as_json: bool) -> None:
    """Print the acks; the exit code is 0 only if there are addressees and none failed."""
    if as_json:
        print_json(receipt)
    else:
        for ack in receipt.acks:
            click.echo(_ack_line(ack))
    if not receipt.acks:
        raise BusdError(f"nobody is subscribed to {to}")
    _check_receipt(receipt, to)


def _check_receipt(receipt: Receipt, to: str) -> None:
    """Raise if it is known already that the message was in vain."""
    from msgspec import UNSET

    if receipt.undelivered is not UNSET:
        raise BusdError(f"nobody is subscribed to {to}")
    failed = [ack for ack in receipt.acks if not ack.success]
    if failed and all(ack.should_retry is True for ack in failed):
        waits = [ack.retry_seconds for ack in failed if ack.retry_seconds is not UNSET]
        when = f" in {max(waits):g} s" if waits else ""
        raise NoAnswer(f"{to} is busy; try again{when}")
    if failed:
        raise click.exceptions.Exit(1)


def _ack_line(ack: Ack) -> str:
    outcome = click.style("ok", fg="green") if ack.success else click.style("failed", fg="red")
    words = [printable(ack.message), printable(bytes(ack.payload).decode())]
    return " ".join([f"{ack.client_id}: {outcome}", *(w for w in words if w not in ("", "{}"))])


@click.command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN…")
@click.option("--count", "-n", type=click.IntRange(min=1), metavar="N", help="Stop after N.")
@bus_options
def listen(
    patterns: tuple[str, ...], count: int | None, address: str | None, as_json: bool
) -> None:
    """Print the messages to all addresses that a PATTERN matches, and ack them.

    If the first PATTERN is a plain address, the bus knows this listener by that name.

    \b
    Examples:
      busd listen agent:bob
      busd listen 'tg:*' 'agent:*' --json
      busd listen '*' --count 10
    """

    async def talk(bus: Client) -> None:
        for pattern in patterns:
            await bus.subscribe(pattern)
        click.echo(f"listening as {bus.client_id}; Ctrl-C stops", err=True)
        left = count
        async for message in bus.messages():
            _print_message(message, as_json)
            await message.reply(_seen(message))
            left = None if left is None else left - 1
            if left == 0:
                return

    plain = patterns[0] if "*" not in patterns[0] and "?" not in patterns[0] else None
    with_client(address, talk, plain)


def _seen(message: Incoming) -> dict[str, Any]:
    content = {"status": "ok", "message": "shown to a person", "request_id": message.message_id}
    return {"type": "general_response", "content": content}


def _print_message(message: Incoming, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "from": message.sender,
                "to": message.to,
                "messageId": message.message_id,
                "payload": message.raw,
            }
        )
        return
    arrow = click.style(f"{message.sender} → {message.to}", bold=True)
    click.echo(f"{arrow}  {printable(_shown(message))}")
    sys.stdout.flush()


def _shown(message: Incoming) -> str:
    """Return the text of a chat message, of anything else the whole payload."""
    import msgspec

    try:
        text = message.payload["content"]["text"]
    except (LookupError, TypeError, RecursionError, msgspec.MsgspecError):
        text = None  # any peer may send anything, even invalid UTF-8
    return text if isinstance(text, str) else bytes(message.raw).decode()


@click.command()
@click.argument("method")
@click.argument("params", required=False, default="{}", metavar="[JSON]")
@click.option("--timeout", type=click.FloatRange(min=0.01), metavar="S", help="Wait at most.")
@bus_options
def call(
    method: str, params: str, timeout: float | None, address: str | None, as_json: bool
) -> None:
    """Call any METHOD of the bus and print its result.

    \b
    Examples:
      busd call ping
      busd call sendMessage '{"to": "agent:bob", "payload": {"type": "hi", "content": {}}}'
    """
    import msgspec

    body = _parse_object(params, "params")
    result = with_client(address, lambda bus: bus.call(method, body), timeout=timeout)
    text = harmless_json(result)
    click.echo(text if as_json else msgspec.json.format(text))


@click.command()
@bus_options
def status(address: str | None, as_json: bool) -> None:
    """Show who is connected and what they subscribed to.

    \b
    Example:
      busd status --json | jq '.connections[].clientId'
    """
    found = with_client(address, lambda bus: bus.status())
    if as_json:
        print_json(found)
        return
    rows = [("PEER", "CONNECTION", "KNOWN BY", "SUBSCRIPTIONS", "ABOUT")]
    for peer in found["connections"]:
        about = (peer["clientInfo"] or {}).get("name", "")
        subscriptions = " ".join(peer["subscriptions"])
        known_by = peer.get("knownBy", "-")
        rows.append((peer["clientId"], peer["connectionId"], known_by, subscriptions, str(about)))
    click.echo(f"{found['serverId']}: {len(rows) - 1} connected")
    print_table(rows)


@click.command()
@bus_options
def describe(address: str | None, as_json: bool) -> None:
    """Show the methods of the bus; with --json as an OpenRPC document.

    \b
    Example:
      busd describe --json > busd.openrpc.json
    """
    document = with_client(address, lambda bus: bus.call("rpc.discover"))
    if as_json:
        print_json(document)
        return
    rows = [("METHOD", "PARAMS", "WHAT IT DOES")]
    for method in document["methods"]:
        params = " ".join(
            each["name"] if each["required"] else f"[{each['name']}]" for each in method["params"]
        )
        rows.append((method["name"], params, method["summary"]))
    print_table(rows)
