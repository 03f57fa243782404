"""What a scripted peer receives: the answers to its requests, and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw

from busd.bus.message import HandedMessage
from busd.errors import CallRefused, NoAnswer
from busd.rpc.envelope import ErrorBody, Failure, LooseEnvelope, Result, encode, read_error

if TYPE_CHECKING:
    from busd.testing.peer import ScriptedPeer

R = TypeVar("R")


class AckSeen(msgspec.Struct, rename="camel"):
    """One addressee's answer as the sender reads it."""

    success: bool
    message: str
    payload: Any  # any JSON value
    client_id: str = ""
    should_retry: bool = False
    retry_seconds: float | None = None
    outcome: str = ""


class MailSeen(msgspec.Struct, rename="camel"):
    """What became of a message that was kept, as the sender reads it."""

    id: int
    state: str
    attempts: int = 0
    duplicate: bool = False


class ReceiptSeen(msgspec.Struct, rename="camel"):
    """The result of `sendMessage` as the sender reads it."""

    accepted: bool
    message_id: str | int
    acks: list[AckSeen]
    undelivered: str | None = None
    acks_left_out: int = 0
    mail: MailSeen | None = None


class Answer(Generic[R]):
    """The answer to a request, which may not have arrived yet."""

    def __init__(self, request_id: int, method: str, shape: type[R]) -> None:
        self.request_id = request_id
        self.method = method
        self.replies: list[LooseEnvelope] = []  # one, unless the bus is broken
        self._shape = shape

    @property
    def is_done(self) -> bool:
        return bool(self.replies)

    def check(self) -> None:
        """Raise NoAnswer if there is no answer yet, CallRefused if it is an error."""
        if not self.replies:
            raise NoAnswer(f"{self.method} has not been answered yet")
        if (error := self.error) is not None:
            data = None if error.data is UNSET else error.data
            raise CallRefused(error.code, error.message, data)

    @property
    def raw(self) -> bytes:
        """The result byte for byte; raises as `check` does."""
        self.check()
        result = self.replies[0].result
        return b"" if result is UNSET else bytes(result)

    @property
    def result(self) -> R:
        """The result; raises as `check` does."""
        return msgspec.json.decode(self.raw, type=self._shape)

    @property
    def error(self) -> ErrorBody | None:
        """The error, if it is one."""
        if not self.replies or self.replies[0].error is UNSET:
            return None
        seen = read_error(self.replies[0].error)
        data = UNSET if seen.data is UNSET else msgspec.json.decode(seen.data)
        return ErrorBody(seen.code, seen.message, data)


class Handed:
    """A message that a scripted peer has received; answer it once, twice or never."""

    def __init__(self, peer: ScriptedPeer, call_id: int, params: Raw) -> None:
        message = msgspec.json.decode(params, type=HandedMessage)
        self.members = msgspec.json.decode(params, type=dict[str, Raw])
        self._peer = peer
        self.call_id = call_id
        self.sender = "" if message.sender is UNSET else message.sender
        self.to = message.to
        self.message_id = "" if message.message_id is UNSET else str(message.message_id)
        attempt = message.delivery_attempt
        self.delivery_attempt = None if attempt is UNSET else attempt  # if the bus said so
        self.raw_payload = bytes(message.payload)

    def __repr__(self) -> str:
        return f"<{self.message_id} from {self.sender} to {self.to}: {self.raw_payload[:80]!r}>"

    @property
    def payload(self) -> Any:
        return msgspec.json.decode(self.raw_payload)

    def ack(self, payload: object = None, *, message: str = "") -> None:
        """Answer with success, and a payload if there is one."""
        said = {"success": True, "message": message, "payload": {} if payload is None else payload}
        self.answer_raw(encode(said))

    def fail(self, reason: str, *, retry_seconds: float | None = None) -> None:
        """Answer with a failure."""
        said: dict[str, object] = {"success": False, "message": reason}
        if retry_seconds is not None:
            said |= {"shouldRetry": True, "retrySeconds": retry_seconds}
        self.answer_raw(encode(said))

    def error(self, code: int, text: str, data: object = UNSET) -> None:
        """Answer with a JSON-RPC error."""
        self._peer.send_frame(encode(Failure(self.call_id, ErrorBody(code, text, data))))

    def answer_raw(self, result: bytes) -> None:
        """Answer with exactly these bytes as the result."""
        self._peer.send_frame(encode(Result(self.call_id, Raw(result))))
