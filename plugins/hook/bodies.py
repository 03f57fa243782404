"""Bodies: read with a limit for each, and for all that are read at the same time."""

from __future__ import annotations

from starlette.requests import Request

from busd_plugins.hook.errors import HookError
from busd_plugins.hook.places import BodyPlaces

# A client that has not told the length, and sends a little too much, reads the answer only if all
# that it has sent was read.
_DISCARDED_BYTES = 64 * 1024


async def read_body(request: Request, most: int, places: BodyPlaces) -> bytes:
    """Return the body of a request; raise HookError if it is too large."""
    fault = HookError(413, "too_large", f"the body has more than {most} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > most):
        raise fault
    body = bytearray()
    async with places.take():
        async for chunk in request.stream():
            body += chunk
            if len(body) > most + _DISCARDED_BYTES:
                raise fault
    if len(body) > most:
        raise fault
    return bytes(body)
