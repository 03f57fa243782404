"""Requests that wait for the disk: processed in a thread, answered from the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import structlog
from anyio.streams.memory import MemoryObjectSendStream

from busd.errors import Busy, InternalError, RequestError
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId

log = structlog.get_logger("busd.ops")

_MAX_WAITING = 64
Work = tuple[Callable[[], Any], Asker, RequestId]


class Offload:
    """A queue of requests whose answers take a thread."""

    def __init__(self) -> None:
        self._queue: MemoryObjectSendStream[Work] | None = None  # while `run` runs

    def put(self, work: Callable[[], Any], asker: Asker, request_id: RequestId) -> None:
        """Queue `work`, whose result is sent to the asker; raise Busy if the queue is full."""
        if self._queue is None:
            raise Busy("the bus is stopping", retrySeconds=1)
        try:
            self._queue.send_nowait((work, asker, request_id))
        except anyio.WouldBlock:
            raise Busy("too many questions at once", retrySeconds=1) from None

    async def run(self, flush: Callable[[], None]) -> None:
        """Process the queue, one request after the other."""
        self._queue, waiting = anyio.create_memory_object_stream[Work](_MAX_WAITING)
        with self._queue, waiting:
            async for work, asker, request_id in waiting:
                try:
                    result = await anyio.to_thread.run_sync(work)
                    asker.answer(request_id, result)
                except RequestError as fault:
                    asker.fail(request_id, fault)
                except Exception:
                    log.exception("request.failed")
                    asker.fail(request_id, InternalError("internal error"))
                flush()
