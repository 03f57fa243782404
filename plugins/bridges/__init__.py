"""Bridges: starts and supervises the processes that connect other chat systems to the bus."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import anyio
import msgspec
from msgspec import Meta

from busd import Context, Plugin, Refuse
from busd.supervise import LogLine, ServiceState
from busd_plugins.bridges.processes import BridgeProcess, BridgeProcesses

plugin = Plugin("bridges", version="1.0")
_running: list[BridgeProcesses] = []  # those of the bus that runs us
_ANSWER_SECONDS = 2.0
_SHOWN_LINES = 20
_MAX_LINES = 1_000


class Nothing(msgspec.Struct):
    """No parameters."""


class BridgeName(msgspec.Struct):
    """A bridge, by the name of its table."""

    name: str


class LogsParams(msgspec.Struct):
    """`after`: the id of the last line that was seen already."""

    name: str
    lines: Annotated[int, Meta(ge=1, le=_MAX_LINES)] = 100
    after: str | None = None


class BridgeRecord(msgspec.Struct, rename="camel", omit_defaults=True):
    """A bridge as `busd bridges ls` lists it."""

    name: str
    kind: str  # plugin, program or gateway
    peer: str  # its name on the bus
    state: ServiceState
    is_on_bus: bool = False
    pid: int | None = None
    restarts: int = 0
    reason: str = ""  # why it ended last, or why it cannot start
    log: str = ""
    status: dict[str, Any] = {}  # what it says itself


class BridgeList(msgspec.Struct):
    bridges: list[BridgeRecord]


class BridgeShown(msgspec.Struct, rename="camel"):
    bridge: BridgeRecord
    last_lines: list[str]


class Logs(msgspec.Struct):
    lines: list[LogLine]


@plugin.on_start
async def start(ctx: Context) -> None:
    processes = BridgeProcesses(ctx)
    _running.append(processes)
    # Not awaited: the bus is ready without them.
    ctx.tasks.start_soon(processes.apply)


@plugin.on_stop
async def stop(ctx: Context) -> None:
    await _running.pop().close()


@plugin.on_reload
async def reload(ctx: Context) -> None:
    for processes in _running:
        await processes.apply()


@plugin.on_peer_joined
def joined(name: str, ctx: Context) -> None:
    for processes in _running:
        processes.joined(name)


@plugin.method("bridges.list", admin=True)
async def list_bridges(params: Nothing, ctx: Context) -> BridgeList:
    """List the bridges of the settings, with what each says of itself."""
    bridges = list(_processes().bridges.values())
    records: dict[str, BridgeRecord] = {}

    async def describe(bridge: BridgeProcess) -> None:
        records[bridge.name] = await _record_of(bridge, ctx)

    async with anyio.create_task_group() as tasks:
        for bridge in bridges:
            tasks.start_soon(describe, bridge)
    return BridgeList([records[name] for name in sorted(records)])


@plugin.method("bridges.show", admin=True)
async def show(asked: BridgeName, ctx: Context) -> BridgeShown:
    """Return all that is known of a bridge, and the last lines it wrote."""
    bridge = _named(asked.name)
    lines = await _lines(bridge, _SHOWN_LINES, None)
    return BridgeShown(await _record_of(bridge, ctx), [line.text for line in lines])


@plugin.method("bridges.logs", admin=True)
async def logs(asked: LogsParams) -> Logs:
    """Return the last lines a bridge wrote, or the first ones after a line seen already."""
    return Logs(await _lines(_named(asked.name), asked.lines, asked.after))


@plugin.method("bridges.restart", admin=True)
async def restart(asked: BridgeName, ctx: Context) -> BridgeRecord:
    """End a bridge and start it again; what waits for it is delivered then."""
    bridge = _named(asked.name)
    if bridge.kind == "gateway":
        raise Refuse(f"{bridge.name} is served by the gateway: restart that")
    if not bridge.table.enabled:
        raise Refuse(f"{bridge.name} is disabled: set enabled in its table and run `busd reload`")
    await _processes().restart(bridge)
    return await _record_of(bridge, ctx)


def _processes() -> BridgeProcesses:
    if not _running:
        raise Refuse("the bridges are not ready", retry_seconds=1)
    return _running[0]


def _named(name: str) -> BridgeProcess:
    bridges = _processes().bridges
    if name not in bridges:
        shown = name[:64]  # to compare a name of a megabyte takes long
        near = difflib.get_close_matches(shown, sorted(bridges), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"add a table bridges.{shown}"
        raise Refuse(f"there is no bridge {shown!r}; {hint}")
    return bridges[name]


async def _lines(bridge: BridgeProcess, count: int, after: str | None) -> list[LogLine]:
    processes = _processes()
    log = bridge.service.log
    return await processes.logs.read(log, processes.directory(bridge), count, after)


async def _record_of(bridge: BridgeProcess, ctx: Context) -> BridgeRecord:
    service = bridge.service
    is_on_bus = ctx.is_present(bridge.peer)
    state = service.state
    if bridge.kind == "gateway" and bridge.table.enabled:
        state = "running" if is_on_bus else "stopped"
    return BridgeRecord(
        name=bridge.name,
        kind=bridge.kind,
        peer=bridge.peer,
        state=state,
        is_on_bus=is_on_bus,
        pid=service.pid,
        restarts=service.restarts,
        reason=service.reason,
        log=service.log,
        status=await _status_of(bridge.peer, ctx) if is_on_bus else {},
    )


async def _status_of(peer: str, ctx: Context) -> dict[str, Any]:
    """Return what the bridge answers; one that runs as a unit of its own does so, too."""
    with anyio.move_on_after(_ANSWER_SECONDS):
        receipt = await ctx.send(peer, {"type": "bridge_status", "content": {}})
        for ack in receipt.acks:
            if ack.success:
                try:
                    said = msgspec.json.decode(ack.payload, type=dict[str, Any])
                except msgspec.MsgspecError:
                    continue  # it is no bridge of ours, and only has the same name
                if said:
                    return said
    return {}
