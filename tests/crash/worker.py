"""A worker, which may be killed at any time.

It records what it processes and then acks it, some of it after a while; it postpones and declines
some messages, and dies now and then between the two. What it does depends on the seed, the message
and the attempt only. It speaks the protocol by hand, so that no mistake of our client hides one of
the bus.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import time
from collections import deque
from pathlib import Path
from typing import Any

from tests.crash.forks import AGAIN, fork_forever
from tests.crash.records import RecordFile
from tests.wire_peers import Closed, LinePeer, open_unix

_POSTPONED, _POSTPONED_FOR, _DIES, _ACKED_LATE = 0.02, 0.02, 0.003, 0.1
_DECLINED = 0.01
_LATE_SECONDS = 0.03
_PAUSE_SECONDS = 0.02  # between attempts to find the bus


class Worker:
    """One peer that gets messages."""

    def __init__(self, name: str, patterns: list[str], record: RecordFile, seed: str) -> None:
        self._name = name
        self._patterns = patterns
        self._record = record
        self._seed = seed
        self._late: deque[tuple[float, Any]] = deque()  # earliest first

    def run(self, path: str) -> None:
        while True:
            try:
                peer = LinePeer(open_unix(path))
            except OSError:
                time.sleep(_PAUSE_SECONDS)
                continue
            self._late.clear()
            try:
                self._serve(peer)
            except (Closed, OSError):
                peer.sock.close()

    def _serve(self, peer: LinePeer) -> None:
        peer.initialize(self._name, extensions={"deliveryAttempt": True})
        for pattern in self._patterns:
            peer.call("subscribe", {"address": pattern})
        while True:
            while peer.waiting or b"\n" in peer.received:
                self._take(peer, peer.next_message())
            now = time.monotonic()
            while self._late and self._late[0][0] <= now:
                peer.answer(self._late.popleft()[1], {"success": True})
            wait = self._late[0][0] - now if self._late else None
            if select.select([peer.sock], [], [], wait)[0]:
                peer.read_some()

    def _take(self, peer: LinePeer, message: Any) -> None:
        params = message["params"]
        message_id, attempt = params["messageId"], params.get("deliveryAttempt", 1)
        if random.Random(f"{self._seed} {message_id}").random() < _DECLINED:
            self._record.add("declined", message_id, attempt)
            peer.answer(message, {"success": False, "message": "declined"})
            return
        chance = random.Random(f"{self._seed} {message_id} {attempt}")
        if chance.random() < _POSTPONED + _POSTPONED_FOR:
            self._record.add("postponed", message_id, attempt)
            refusal = {"success": False, "message": "later", "shouldRetry": True}
            is_timed = chance.random() < _POSTPONED_FOR / (_POSTPONED + _POSTPONED_FOR)
            peer.answer(message, refusal | ({"retrySeconds": 0.05} if is_timed else {}))
            return
        number = params["payload"]["number"]
        self._record.add("processed", message_id, attempt, params["from"], params["to"], number)
        if chance.random() < _DIES:
            os._exit(AGAIN)
        if chance.random() < _ACKED_LATE:
            self._late.append((time.monotonic() + _LATE_SECONDS, message))
        else:
            peer.answer(message, {"success": True})


def main(args: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--pattern", action="append", default=[])
    parser.add_argument("--seed", default="1")
    parser.add_argument("--events", type=int)
    chosen = parser.parse_args(args)

    def work() -> None:
        record = RecordFile(chosen.folder / f"{chosen.name}.got", chosen.events)
        Worker(chosen.name, chosen.pattern, record, chosen.seed).run(chosen.path)

    fork_forever(chosen.name, work)
