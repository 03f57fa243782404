"""Pushing: a user's message becomes a `tg_message` that the bus accepts, once."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

import anyio
import msgspec
from msgspec import UNSET, Raw

from busd.bridge.messages import Inbound
from busd.bridge.refusals import PushRefused, TooLarge
from busd.bus.mail_state import MailState
from busd.bus.message import MAX_ID_CHARACTERS, MailReceipt, Receipt
from busd.client.client import Client
from busd.client.connect import pauses
from busd.errors import BusUnreachable, Busy, CallRefused, ConnectionLost, NoAnswer
from busd.vocabulary.bub import AgentEvent, TgMessage
from busd.vocabulary.payload import write_message

log = logging.getLogger("busd.bridge")

ROUTE = "system:route"
_ATTEMPT_SECONDS = 75.0  # longer than a bus waits for acks
_TOO_LARGE_RULES = ("max_frame_bytes", "payload")
_SUCCEEDED = (MailState.ACKED, MailState.KEPT, MailState.DELIVERED)
_encode = msgspec.json.Encoder().encode


def payload_of(inbound: Inbound, address: str, channel: str) -> Raw:
    """Return a user's message as a `tg_message`."""
    said = TgMessage(
        text=inbound.text,
        senderId=inbound.sender_id,
        channel=channel,
        chat_id=inbound.chat_id,
        username=inbound.username or UNSET,
        full_name=inbound.full_name or UNSET,
        thread_id=inbound.thread_id or UNSET,
        prompt_id=inbound.prompt_id or UNSET,
        attachments=[Raw(_encode(each)) for each in inbound.attachments] or UNSET,
        metadata=Raw(_encode(inbound.metadata)) if inbound.metadata else UNSET,
    )
    return write_message(said, sender=address, message_id=inbound.turn)


def cancel_payload(address: str, channel: str, chat_id: str, turn: str) -> Raw:
    """Return a `turn.cancel` for the agent of a chat."""
    data: dict[str, Any] = {"channel": channel, "chat_id": chat_id}
    if turn:
        data["turn"] = turn
    return write_message(AgentEvent("turn.cancel", Raw(_encode(data))), sender=address)


def key_of(prefix: str, external_id: str) -> str:
    """Return the idempotency key of a message; a long id is replaced by its hash."""
    key = f"{prefix}:{external_id}"
    if len(key) <= MAX_ID_CHARACTERS:
        return key
    return f"{prefix}:sha256:{sha256(external_id.encode(errors='surrogatepass')).hexdigest()}"


async def send_until_accepted(
    find_client: Callable[[], Awaitable[Client]],
    to: str,
    payload: Raw,
    sender: str,
    key: str,
    *,
    durable: bool,
) -> Receipt:
    """Send a message until the bus has accepted it; raise CallRefused or TooLarge."""
    waits = pauses()
    while True:
        client = await find_client()
        try:
            receipt = await client.send(
                to,
                payload,
                sender=sender,
                caused_by="",  # what a user says follows from nothing
                durable=durable,
                idempotency_key=key,
                timeout_seconds=_ATTEMPT_SECONDS,
            )
        except (ConnectionLost, BusUnreachable, NoAnswer) as problem:
            log.info("a message of %s is sent again: %s", sender, problem)
            seconds = 0.0
        except CallRefused as refusal:
            known = _known_before(refusal)
            if known is not None:
                return known
            seconds = _seconds_until_next(refusal)
        else:
            wished = _seconds_until_accepted(receipt, to)
            if wished is None:
                return receipt
            seconds = wished
        await anyio.sleep(max(seconds, next(waits)) * random.uniform(1, 1.25))  # noqa: S311 - no secret


def _known_before(refusal: CallRefused) -> Receipt | None:
    """Return the receipt of a message whose key the bus knows: it differs in its timestamp."""
    data = refusal.data if isinstance(refusal.data, dict) else {}
    if data.get("rule") != "idempotency":
        return None
    mail = MailReceipt(0, MailState.KEPT, duplicate=True)
    return Receipt(True, str(data.get("firstMessageId", "")), [], mail=mail)


def _seconds_until_next(refusal: CallRefused) -> float:
    """Return when to try again; raise the refusal if that does not help."""
    data = refusal.data if isinstance(refusal.data, dict) else {}
    if data.get("rule") in _TOO_LARGE_RULES or data.get("member") == "payload":
        raise TooLarge(f"the message is too large for the bus: {refusal.message}") from None
    if refusal.code != Busy.code:
        raise refusal
    wished = data.get("retrySeconds")
    return float(wished) if isinstance(wished, int | float) else 1.0


def _seconds_until_accepted(receipt: Receipt, to: str) -> float | None:
    """Return None if the bus has accepted a message, else when to try again; raise PushRefused."""
    if receipt.is_kept or any(ack.success for ack in receipt.acks):
        return None
    for ack in receipt.acks:
        if ack.should_retry is True:
            return float(ack.retry_seconds) if ack.retry_seconds is not UNSET else 1.0
    if receipt.acks:
        raise PushRefused(receipt.acks[0].message)
    if receipt.mail is not UNSET:
        if receipt.mail.state in _SUCCEEDED:
            return None
        raise PushRefused(f"the message was given up: {receipt.mail.state}")
    raise PushRefused(f"nobody is connected as {to}")
