"""A place to chat at: a bus with its gateway, the agents of the tests, and ways to kill them."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
from anyio import to_thread

from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, Settings, open_daemon
from tests.plugins.gateway.asking import Gateway, open_gateway_of

Victim = Literal["gateway", "bus", "worker"]
AGENT = Path(__file__).with_name("agent.py")
_POLL_SECONDS = 0.01
T = TypeVar("T")


class Place:
    """A bus with its gateway; both come back at the same port when they were killed."""

    def __init__(self, daemon: Daemon, loop: Loop, settings: Settings, folder: Path) -> None:
        self.daemon = daemon
        self.folder = folder  # of the stages of agents
        self.port = int(str(settings["gateway.listen"]).rpartition(":")[2])
        self._loop = loop
        self._settings = settings

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def state(self) -> Path:
        return self.daemon.folder / "state"

    def ask(self, question: Callable[[Gateway], T]) -> T:
        """Return what the gateway of the bus answers; not in a task."""
        with open_gateway_of(self.daemon) as gateway:
            return question(gateway)

    async def status(self) -> dict[str, Any]:
        """Return the status of the gateway once it runs."""
        return await to_thread.run_sync(self.ask, lambda gateway: gateway.until("running"))

    async def token_of(self, user: str) -> str:
        """Return a new token for a user of the gateway."""

        def create(gateway: Gateway) -> str:
            made: str = gateway.bus.call("gateway.newToken", {"name": user})["token"]
            return made

        return await to_thread.run_sync(self.ask, create)

    def gateway_log(self) -> str:
        log = self.state / "gateway/logs/worker.log"
        return log.read_text() if log.exists() else ""

    # Stages of the agents

    async def reached(self, stage: str) -> int:
        """Wait until an agent has reached a stage; return its pid."""
        return int(await self.written(stage))

    async def written(self, name: str) -> str:
        """Wait for a file of an agent; return what is in it."""
        with anyio.fail_after(PATIENCE_SECONDS):
            while not (self.folder / name).exists():
                await anyio.sleep(_POLL_SECONDS)
        return (self.folder / name).read_text()

    def let_go(self, stage: str) -> None:
        """Let the agents go on that are or will be at a stage."""
        (self.folder / f"{stage}.go").touch()

    # Kills

    async def kill_gateway(self) -> None:
        """Kill the gateway; the bus starts it again."""
        os.kill((await self.status())["pid"], signal.SIGKILL)

    async def kill_bus(self) -> None:
        """Kill the bus, with which its gateway and its agents end, and start it again."""
        # Not in a thread: the kernel would end the new bus together with the thread.
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait()
        self.daemon.start_again(self._loop, self._settings)
        stages = [each for each in self.folder.iterdir() if each.suffix in (".midway", ".ending")]
        pids = [int(stage.read_text()) for stage in stages]
        with anyio.fail_after(PATIENCE_SECONDS):
            while any(map(is_running, pids)):
                await anyio.sleep(_POLL_SECONDS)


@contextmanager
def open_place(loop: Loop = "uvloop", settings: Settings | None = None) -> Iterator[Place]:
    """Run a bus with its gateway, whose agents are those of `agent.py`."""
    with reserved_port() as port, tempfile.TemporaryDirectory(prefix="busd-e2e-") as folder:
        chosen: dict[str, object] = {
            "gateway.enabled": True,
            "gateway.listen": f"127.0.0.1:{port}",
            "workers.default.agent": [sys.executable, str(AGENT), folder],
            "workers.default.spawner": "subprocess",
            "workers.default.restart_seconds": 0.05,
            "agents.stop_seconds": 1.0,
            "gateway.drain_seconds": 0.2,
            **(settings or {}),
        }
        with open_daemon(loop, chosen) as daemon:
            place = Place(daemon, loop, chosen, Path(folder))
            place.ask(lambda gateway: gateway.until("running"))
            yield place
            assert not find_faults(place.gateway_log()), place.gateway_log()


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def find_faults(log: str) -> list[str]:
    """Return the lines of a log by which a program says that it is at fault."""
    lines = log.splitlines()
    return [line for line in lines if '"level":"error"' in line or "Traceback" in line]


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a port that only those get who ask for it: it is bound, and nobody listens."""
    with closing(socket.socket()) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield int(sock.getsockname()[1])
