"""Errors: what a caller is told, as `{"error": {"code", "message"}}`."""

from __future__ import annotations

import msgspec


class Fault(msgspec.Struct):
    """Why a request is refused."""

    code: str
    message: str
    id: str = ""  # of the request, if it has one


class FaultBody(msgspec.Struct):
    error: Fault


class HookError(Exception):
    """A request is refused: an HTTP status, a code for programs and a text for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retry_seconds: int = 0,
        id: str = "",  # noqa: A002
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_seconds = retry_seconds
        self.fault = Fault(code, message, id)

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(FaultBody(self.fault))
