"""The verbs that talk over a running bus: listen, call, status, describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from busd.errors import BusdError, CallRefused
from busd.ops.output import harmless_json, print_json, print_table, printable

if TYPE_CHECKING:
    from busd.client.client import Client
    from busd.client.incoming import Incoming

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_NO_METHOD = -32601


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
        async with Client(name or own_name(), address=address, **options) as bus:
            return await talk(bus)

    return anyio.run(run, backend_options={"use_uvloop": use_uvloop})


@contextmanager
def refusals_as_failures(missing: str) -> Iterator[None]:
    """Raise what a plugin refuses in the operator's words: none of it is a mistake in typing.

    `missing` is what a bus says that does not run the plugin.
    """
    try:
        yield
    except CallRefused as refusal:
        rule = refusal.data.get("rule") if isinstance(refusal.data, dict) else None
        if refusal.code == _NO_METHOD:
            raise BusdError(missing) from None
        if str(rule).startswith("plugin."):
            raise BusdError(refusal.message) from None
        raise


def own_name() -> str:
    return f"cli:{os.getpid()}"


def parse_object(text: str, what: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as problem:
        raise click.UsageError(f"{what} must be a JSON object: {problem}") from None


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

    body = parse_object(params, "params")
    result = with_client(address, lambda bus: bus.call(method, body), timeout=timeout)
    text = harmless_json(result)
    click.echo(text if as_json else msgspec.json.format(text))


@click.command()
@bus_options
def status(address: str | None, as_json: bool) -> None:
    """Show who is connected and what they subscribed to, and how much mail waits.

    \b
    Example:
      busd status --json | jq '.connections[].clientId'
    """
    found = with_client(address, _ask_status)
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
    if mail := found.get("mail"):
        failing = "; it cannot be written: busd doctor" if mail["isFailing"] else ""
        click.echo(f"mail: {mail['count']} waiting, {mail['dead']} dead letters{failing}")
    if gateway := found.get("gateway"):
        click.echo(f"gateway: {_line_of_gateway(gateway)}")
    if bridges := found.get("bridges"):
        click.echo(f"bridges: {', '.join(map(_bridge_state, bridges))}")
    print_table(rows)


def _line_of_gateway(gateway: dict[str, Any]) -> str:
    if gateway["state"] == "running":
        clients = sum(gateway.get("overview", {}).get("sessions", {}).values())
        return f"running at {gateway['listen']}, {clients} clients"
    reason = gateway.get("reason")
    return f"{gateway['state']}: {reason}" if reason else str(gateway["state"])


def _bridge_state(bridge: dict[str, Any]) -> str:
    """Return a bridge's state: that of its process or, while this runs, that of its link."""
    link = bridge.get("status", {}).get("state", "")
    is_well = bridge["state"] != "running" or link in ("", "connected")
    return f"{bridge['name']} {bridge['state'] if is_well else link}"


async def _ask_status(bus: Client) -> dict[str, Any]:
    """Return the status of the bus; if we are an admin, with mailboxes, gateway and bridges."""
    found: dict[str, Any] = await bus.status()
    try:
        about = await bus.call("bus.about")
        if about.get("mail"):
            found["mail"] = about["mail"]
        gateway = await bus.call("gateway.status")
        if gateway["state"] != "disabled":
            found["gateway"] = gateway
        listed = (await bus.call("bridges.list"))["bridges"]
        if running := [each for each in listed if each["state"] != "disabled"]:
            found["bridges"] = running
    except CallRefused:
        pass  # we are no admin, or the plugin of the gateway or of bridges is disabled
    return found


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
