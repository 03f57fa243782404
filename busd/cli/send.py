"""`busd send`: send one message, and say what became of it."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from busd.cli.duration import duration
from busd.cli.talk import bus_options, own_name, parse_object, with_client
from busd.errors import BusdError, CallRefused, NoAnswer
from busd.ops.output import print_json, printable

if TYPE_CHECKING:
    from busd.bus.message import Ack, Receipt
    from busd.client.client import Client

_MAX_KEY_CHARACTERS = 256


def _check_key(context: click.Context, option: click.Parameter, key: str | None) -> str:
    if key is None:
        return ""
    if not 0 < len(key) <= _MAX_KEY_CHARACTERS:
        raise click.BadParameter(f"a key has 1 to {_MAX_KEY_CHARACTERS} characters")
    return key


@click.command()
@click.argument("to")
@click.argument("text", required=False)
@click.option("--type", "kind", default="tg_message", show_default=True, help="Payload type.")
@click.option("--from", "sender", metavar="ADDRESS", help="Speak as this address.")
@click.option("--payload", metavar="JSON", help="The whole payload, instead of TEXT.")
@click.option("--wait", "-w", is_flag=True, help="Wait for the acks and print them.")
@click.option("--timeout", type=click.FloatRange(min=0.01), metavar="S", help="Wait at most.")
@click.option(
    "--durable", is_flag=True, help="Have the bus keep it on the disk until it is delivered."
)
@click.option(
    "--ttl", type=duration, metavar="TIME", help="Keep it no longer than this (30s, 10m, 1h, 7d)."
)
@click.option(
    "--idempotency-key",
    "key",
    callback=_check_key,
    metavar="KEY",
    help="Deliver it once, however often it is sent with this key.",
)
@bus_options
def send(
    to: str,
    text: str | None,
    kind: str,
    sender: str | None,
    payload: str | None,
    wait: bool,
    timeout: float | None,
    durable: bool,
    ttl: float | None,
    key: str,
    address: str | None,
    as_json: bool,
) -> None:
    """Send a message TO an address; TEXT of - is read from standard input.

    The exit code is 0 if it was delivered, or is kept for somebody who is away. With --durable it
    is sent again while the bus restarts, until --timeout.

    \b
    Examples:
      busd send agent:bob "hello" --wait
      busd send agent:bob "hello" --durable --ttl 1h
      git diff | busd send agent:reviewer - --wait --timeout 120
      busd send system:spawn --payload '{"type": "ping", "content": {}}'
    """
    if (text is None) == (payload is None):
        raise click.UsageError("give either TEXT (or - for standard input) or --payload")

    from busd.bus.address import check_address

    # A key belongs to its sender: the next run with the same key must have the same name, and must
    # send the same payload.
    name = f"cli:uid-{os.getuid()}" if key else own_name()
    speaker = sender or name
    check_address(to)
    check_address(speaker)
    # Standard input is read to its end before we connect.
    if payload is None:
        body = _body(kind, speaker, text, is_terminal=sender is None, is_dated=not key)
    else:
        body = parse_object(payload, "--payload")

    options: dict[str, Any] = {"durable": durable, "ttl_seconds": ttl, "idempotency_key": key}

    async def talk(bus: Client) -> None:
        give = bus.send if wait else bus.post
        receipt = await give(to, body, sender=speaker, **options)
        if as_json:
            print_json(receipt)
        elif wait:
            for ack in receipt.acks:
                click.echo(_ack_line(ack))
        else:
            click.echo(receipt.message_id)
        if receipt.is_duplicate:
            click.echo(f"sent before as {receipt.message_id}; not delivered again", err=True)
        if receipt.is_kept:
            click.echo(await _kept_words(bus, receipt, to), err=True)
        else:
            _check_receipt(receipt, to)

    with_client(address, talk, name, timeout)


async def _kept_words(bus: Client, receipt: Receipt, to: str) -> str:
    """Return until when a message is kept, as far as this peer may know."""
    from msgspec import UNSET

    until = ""
    if receipt.mail is not UNSET:
        asked = {"address": to, "after": receipt.mail.id - 1, "limit": 1}
        try:
            found = (await bus.call("bus.showMailbox", asked))["messages"]
        except CallRefused:
            found = []  # we are no admin
        if found and found[0]["id"] == receipt.mail.id:
            until = f" until {found[0]['expiresAt'][:19]}Z"
    if receipt.undelivered == "retrying":
        reasons = [printable(ack.message) for ack in receipt.acks if ack.message]
        why = f" ({reasons[-1]})" if reasons else ""
        return f"{to} has not accepted it{why}; the bus goes on trying{until}"
    return f"kept for {to}{until}"


def _body(
    kind: str, speaker: str, text: str | None, *, is_terminal: bool, is_dated: bool
) -> dict[str, Any]:
    words = sys.stdin.read() if text == "-" else text
    content = {"text": words, "senderId": speaker}
    if is_terminal:
        content["channel"] = "terminal"  # of anybody else the address says it
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    dated = {"timestamp": now} if is_dated else {}
    return {"type": kind, "from": speaker, **dated, "content": content}


_ENDS = {"expired": "expired", "dead": "was given up", "purged": "was deleted by an operator"}


def _check_receipt(receipt: Receipt, to: str) -> None:
    """Raise if it is known already that the message was in vain."""
    from msgspec import UNSET

    if receipt.undelivered is not UNSET:
        raise BusdError(f"nobody is subscribed to {to}")
    if receipt.mail is not UNSET and receipt.mail.state in _ENDS:
        raise BusdError(f"it {_ENDS[receipt.mail.state]} before {to} accepted it")
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
