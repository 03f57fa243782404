"""The exceptions of busd, grouped by who is at fault; every layer may import this file."""

from __future__ import annotations


class BusdError(Exception):
    """Anything busd raises on purpose."""


class ConfigError(BusdError):
    """The configuration is invalid: one line, exit 78."""


class ProtocolViolation(BusdError):
    """The peer broke the framing beyond recovery: its connection is closed.

    `close_code` is the close code of a WebSocket; lines have none.
    """

    def __init__(self, reason: str, *, rule: str, close_code: int = 1002) -> None:
        super().__init__(reason)
        self.reason = reason
        self.rule = rule
        self.close_code = close_code


class RequestError(BusdError):
    """The peer sent an invalid or forbidden request: an error reply; the connection stays open.

    `data` contains the rule or limit in machine-readable form.
    """

    code = -32603
    rule = "internal"

    def __init__(self, message: str, **data: object) -> None:
        super().__init__(message)
        self.message = message
        self.data: dict[str, object] = {"rule": self.rule, **data}


class ParseError(RequestError):
    code = -32700
    rule = "json"


class InvalidRequest(RequestError):
    code = -32600
    rule = "json-rpc"


class MethodNotFound(RequestError):
    code = -32601
    rule = "method"


class InvalidParams(RequestError):
    code = -32602
    rule = "params"


class MalformedAddress(InvalidParams):
    rule = "address"


class MalformedPattern(InvalidParams):
    rule = "pattern"


class AccessRefused(InvalidParams):
    """No grant allows it; `data.rule` is the closest one."""

    rule = "grant"


class LoopDetected(InvalidParams):
    """The message goes round in a loop; `data.path` has the addresses that it passes."""

    rule = "loop"


class NotInitialized(RequestError):
    code = -32001
    rule = "initialize.first"


class AlreadyInitialized(RequestError):
    code = -32001
    rule = "initialize.once"


class NotSubscribed(RequestError):
    code = -32003
    rule = "subscription"


class Busy(RequestError):
    code = -32004
    rule = "busy"


class QuotaExceeded(Busy):
    """An identity has used up its quota; `data.limit` is the limit."""

    rule = "quota"


class MailFailed(Busy):
    """A message was not kept, and not delivered either: try again later."""

    rule = "mail"


class MailboxFull(MailFailed):
    """A limit of the mailboxes is reached; `data.limit` is the limit."""


class KeyIsTaken(InvalidParams):
    """The idempotency key was used for another message; `data.firstMessageId` names it."""

    rule = "idempotency"


class RateLimited(Busy):
    rule = "rate"


class AuthenticationFailed(RequestError):
    code = -32005
    rule = "authentication"


class TooManyFailures(Busy):
    rule = "authentication.rate"


class InternalError(RequestError):
    """A bug of ours: the traceback is in our log, the peer gets no details."""

    code = -32603
    rule = "internal"


class PluginError(RequestError):
    """A plugin's fault: the reason is in our log, the peer learns only the plugin's name."""

    code = -32603
    rule = "plugin"


class BusUnreachable(BusdError):
    """Cannot connect to the address of the bus; nothing was sent."""


class BusForbidden(BusUnreachable):
    """This user has no permission to connect to the socket of the bus."""


class ConnectionLost(BusdError):
    """The connection was lost before the answer arrived.

    `maybe_delivered` is False only if no byte of the request was sent.
    """

    def __init__(self, what: str, *, maybe_delivered: bool) -> None:
        fate = "may have been delivered" if maybe_delivered else "was not sent"
        super().__init__(f"connection to the bus lost: {what} {fate}")
        self.maybe_delivered = maybe_delivered


class NoAnswer(BusdError):
    """The bus did not answer in time; the request may have been carried out."""


class CallRefused(BusdError):
    """The bus answered a call with an error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        detail = data.get("detail") if isinstance(data, dict) else None
        super().__init__(f"{message}: {detail} ({code})" if detail else f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class Refuse(BusdError):
    """Raised by a handler to decline a message: a failed ack with the reason."""

    def __init__(self, reason: str, *, retry_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_seconds = retry_seconds
