"""A daemon that can be killed and started again where it was."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread

from busd import Client, ConnectionLost
from tests.client.conftest import address_of
from tests.daemons import Daemon, serve_args, start_busd
from tests.wire_peers import Transport

_ANY_PORT = "tcp://127.0.0.1:0"


class Restartable:
    """A daemon in a folder of its own; whoever is started there listens where the first did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tcp = _ANY_PORT
        self._daemon: Daemon | None = None
        self.start_now()
        self._tcp = f"tcp://127.0.0.1:{self.daemon.port}"

    @property
    def daemon(self) -> Daemon:
        assert self._daemon is not None, "it is not running"
        return self._daemon

    def address(self, transport: Transport = "unix") -> str:
        return address_of(self.daemon, transport)

    def start_now(self) -> None:
        args = [self._tcp if arg == _ANY_PORT else arg for arg in serve_args(self._folder)]
        self._daemon = Daemon(start_busd(args, self._folder), self._folder)

    async def start(self) -> None:
        """Start it, while the clients of this loop go on looking for it."""
        await anyio.to_thread.run_sync(self.start_now)

    def kill(self) -> None:
        """End it as a crash would: without a word, its socket file left behind."""
        process = self.daemon.process
        self._daemon = None
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def end(self) -> None:
        if self._daemon is not None:
            self.kill()


async def until_back(*clients: Client) -> None:
    """Wait until the clients have found a bus that was started again."""
    for client in clients:
        while True:
            try:
                await client.ping()
                break
            except ConnectionLost:
                continue  # it had not noticed yet; now it has
