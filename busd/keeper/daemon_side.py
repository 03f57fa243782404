"""The keeper's connection to the daemon: requests in, answers and reports out."""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from busd.keeper.credentials import NoCredential
from busd.keeper.launch import decode_launch
from busd.keeper.start import CannotStart
from busd.keeper.worker import KeeperProcess
from busd.unix_peer import read_unix_peer

if TYPE_CHECKING:
    from busd.keeper.process import Keeper

MAX_LINE_BYTES = 4 * 1024 * 1024
_MAX_UNSENT_BYTES = 16 * 1024 * 1024
Json = dict[str, Any]  # Any: decoded JSON from our own daemon


class DaemonSide:
    """The connection of the one daemon that the keeper serves."""

    def __init__(self, keeper: Keeper, connection: socket.socket) -> None:
        self._keeper = keeper
        self._connection = connection
        self._received = b""
        self._unsent = bytearray()
        self._handlers: dict[str, Callable[[Json], Json | None]] = {
            "hello": self._hello,
            "settings": self._settings,
            "start": self._start,
            "adopt": self._adopt,
            "stop": self._stop,
            "end": self._end,
        }

    @staticmethod
    def is_own(connection: socket.socket) -> bool:
        """Return whether the other side runs as this user or root."""
        return read_unix_peer(connection).uid in (0, os.geteuid())

    @staticmethod
    def refuse(connection: socket.socket) -> None:
        """Refuse a second daemon: another one is connected already."""
        with connection:
            connection.setblocking(False)
            try:
                connection.send(b'{"error":"another daemon has these workers"}\n')
            except OSError:
                pass

    def listen(self) -> None:
        self._connection.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Send pending output, if possible without waiting, and close."""
        self._write()
        self._keeper.unwatch(self._connection.fileno())
        self._connection.close()

    def _watch(self) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._keeper.watch_events(self._connection.fileno(), events, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
            self._watch()
        if events & selectors.EVENT_READ and not self._read():
            self._keeper.unwatch(self._connection.fileno())
            self._connection.close()
            self._keeper.on_daemon_gone()

    def _read(self) -> bool:
        """Handle received requests; return False if the daemon is gone or a request is invalid."""
        try:
            chunk = self._connection.recv(65_536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            try:
                self._handle(json.loads(line))
            except (ValueError, KeyError, TypeError) as problem:
                self.send({"error": f"not an order: {problem!r}"})
                return False
        return bool(chunk) and len(self._received) <= MAX_LINE_BYTES

    def send(self, message: Json) -> None:
        """Send a message to the daemon; disconnect it if it has not read for long."""
        self._unsent += json.dumps(message).encode() + b"\n"
        was_waiting = len(self._unsent) > _MAX_UNSENT_BYTES
        self._write()
        if was_waiting and len(self._unsent) > _MAX_UNSENT_BYTES:
            self._connection.shutdown(socket.SHUT_RDWR)  # the next read reports its end
            self._unsent.clear()
        if self._unsent:
            self._watch()

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # the next read reports its end

    # -- requests -------------------------------------------------------------------------------

    def _handle(self, request: Json) -> None:
        answer = self._handlers[request["order"]](request)
        if answer is not None:
            self.send({"answer": request["number"], **answer})

    def _hello(self, request: Json) -> Json:
        is_ending = self._keeper.is_ending
        self._keeper.on_hello(request["when_bus_stops"], float(request["adopt_seconds"]))
        return {"pid": os.getpid(), "is_ending": is_ending}

    def _settings(self, request: Json) -> Json:
        self._keeper.when_bus_stops = request["when_bus_stops"]
        self._keeper.adopt_seconds = float(request["adopt_seconds"])
        return {}

    def _start(self, request: Json) -> Json:
        launch = decode_launch(request["launch"])
        if self._keeper.is_ending:
            return {"error": "the keeper of the workers is ending"}
        if launch.name in self._keeper.workers:
            return {"error": f"{launch.name} has been started already"}
        worker = KeeperProcess(self._keeper, launch)
        try:
            worker.start()
        except (CannotStart, NoCredential) as problem:
            return {"error": str(problem)}
        self._keeper.workers[worker.name] = worker
        return {"pid": worker.pid, "init": worker.init, "limits": worker.limits}

    def _adopt(self, request: Json) -> Json:
        worker = self._keeper.claim(request["worker"])
        if worker is None:
            return {"error": "no such worker"}
        return {
            "pid": worker.pid,
            "init": worker.init,
            "limits": worker.limits,
            "workspace": str(worker.launch.directory),
            "stop_seconds": worker.launch.stop_seconds,
        }

    def _stop(self, request: Json) -> Json:
        worker = self._keeper.workers.get(request["worker"])
        if worker is not None:
            worker.stop()
        return {}

    def _end(self, _request: Json) -> None:
        self._keeper.end_all()
