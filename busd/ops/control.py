"""The methods that control the bus itself: describe it, reload it, stop it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import structlog

from busd import __version__
from busd.bus.mailboxes import Mailboxes
from busd.bus.methods import Nothing
from busd.bus.peer import RemotePeer
from busd.errors import AccessRefused, Busy
from busd.finding import Finding
from busd.ops.reloads import Reloaded
from busd.ops.running import RunningBus
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId
from busd.rpc.methods import DEFERRED, Methods
from busd.settings.doubts import find_doubts

log = structlog.get_logger("busd.ops")


class BusProcess(msgspec.Struct, rename="camel"):
    """The process of a bus. The two numbers together name it, on its host, for all time."""

    pid: int
    start_ticks: int


class MailAbout(msgspec.Struct, rename="camel"):
    """What there is in all mailboxes, and the limits."""

    count: int
    bytes: int
    dead: int
    dead_bytes: int
    is_failing: bool  # the last attempt to write failed
    box_count: int  # the limits, as in the settings
    box_bytes: int
    total_count: int
    total_bytes: int


class About(msgspec.Struct, rename="camel"):
    """The bus that runs, as the doctor wants to know it."""

    version: str
    process: BusProcess
    listening: list[str]
    state: str
    refused: str  # why the last reload was refused; "" if it was not
    findings: list[Finding]  # what is doubtful of its settings, as seen by the bus
    mail: MailAbout | None = None


class Stopping(msgspec.Struct, rename="camel"):
    """A bus that has begun to stop."""

    within_seconds: float
    starts_on_demand: bool  # systemd holds its sockets: the next client starts it again


def register_control(table: Methods[RemotePeer], daemon: RunningBus) -> None:
    """Add the methods to the table."""

    @table.register("bus.about", Nothing, About, errors=(AccessRefused,))
    def about(peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /) -> About:
        """Describe the running bus: its process, its listeners, what is wrong with its settings."""
        require_admin(peer)
        return About(
            version=__version__,
            process=own_process(),
            listening=[str(listener.address) for listener in daemon.listeners],
            state=daemon.settings.state,
            refused=daemon.last_reload.refused,
            findings=list(find_doubts(daemon.settings)),
            mail=_mail_about(daemon.bus.mailboxes),
        )

    @table.register("bus.reload", Nothing, Reloaded, errors=(AccessRefused, Busy))
    def reload(peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /) -> object:
        """Read the settings and plugins again; return what changed and what was refused."""
        require_admin(peer)
        log.info("reload.requested", peer=peer.name, identity=str(peer.identity))
        daemon.reloads.put(asker, request_id)
        return DEFERRED

    @table.register("bus.stop", Nothing, Stopping, errors=(AccessRefused,))
    def stop(peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /) -> Stopping:
        """Stop the bus: it answers what it has accepted, then its process ends."""
        require_admin(peer)
        log.info("daemon.stopping", peer=peer.name, identity=str(peer.identity))
        daemon.is_stopping.set()
        starts_on_demand = any(listener.is_inherited for listener in daemon.listeners)
        return Stopping(daemon.longest_stop_seconds, starts_on_demand)


def _mail_about(mailboxes: Mailboxes | None) -> MailAbout | None:
    if mailboxes is None:
        return None
    totals, limits = mailboxes.store.totals, mailboxes.settings
    return MailAbout(
        count=totals.count,
        bytes=totals.bytes,
        dead=totals.dead,
        dead_bytes=totals.dead_bytes,
        is_failing=mailboxes.store.is_failing,
        box_count=limits.box_count,
        box_bytes=limits.box_bytes,
        total_count=limits.total_count,
        total_bytes=limits.total_bytes,
    )


def require_admin(peer: RemotePeer) -> None:
    """Raise AccessRefused unless a grant makes this peer an admin."""
    if not peer.rights.is_admin:
        raise AccessRefused(f"{peer.name} is no admin here", rule="grant.admin")


def own_process() -> BusProcess:
    pid = os.getpid()
    ticks = start_ticks(pid)
    assert ticks is not None
    return BusProcess(pid, ticks)


def start_ticks(pid: int) -> int | None:
    """Return when a process of this host was started, in ticks since boot; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field is a name in brackets, with anything in it; this is the 22nd.
    return int(text.rpartition(")")[2].split()[19])
