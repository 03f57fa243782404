"""The error replies that the bus is expected to give."""

from __future__ import annotations

from tests.wire_peers import Json


def error(code: int, message: str, request_id: Json = None, **data: Json) -> Json:
    """Return the error reply that is expected."""
    body = {"code": code, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def invalid(detail: str, request_id: Json = None) -> Json:
    return error(-32600, "Invalid request", request_id, rule="json-rpc", detail=detail)


def unparsable(detail: str, request_id: Json = None) -> Json:
    return error(-32700, "Parse error", request_id, rule="json", detail=detail)


def too_long(limit: int) -> Json:
    return error(-32600, f"frame over {limit} bytes", rule="max_frame_bytes")
