"""Gateway: starts and supervises the process that lets clients of other chat formats in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec

from busd import BusdError, Context, Plugin, Refuse
from busd.supervise import ServiceState
from busd_plugins.gateway.process import GatewayProcess

plugin = Plugin("gateway", version="1.0")
_processes: list[GatewayProcess] = []  # the one of the bus that runs us
_ANSWER_SECONDS = 2.0


class Nothing(msgspec.Struct):
    """No parameters."""


class GatewayStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """The gateway as `busd gateway status` shows it."""

    state: ServiceState
    listen: str
    name: str
    pid: int | None = None
    restarts: int = 0
    reason: str = ""
    log: str = ""
    overview: dict[str, Any] = {}  # what it says itself


@plugin.on_start
async def start(ctx: Context) -> None:
    process = GatewayProcess(ctx)
    _processes.append(process)
    # Not awaited: the bus is ready without it.
    ctx.tasks.start_soon(process.apply)


@plugin.on_stop
async def stop(ctx: Context) -> None:
    await _processes.pop().close()


@plugin.on_reload
async def reload(ctx: Context) -> None:
    for process in _processes:
        await process.apply()


@plugin.on_peer_joined
def joined(name: str, ctx: Context) -> None:
    for process in _processes:
        process.joined(name)


@plugin.method("gateway.status", admin=True)
async def status(params: Nothing, ctx: Context) -> GatewayStatus:
    """Describe the gateway: its process, its address, its clients."""
    process = _process()
    table, service = process.table, process.service
    overview = await _overview(table.name, ctx)
    # One that is disabled here may run as a unit of its own.
    state: ServiceState = "running" if overview and service.state == "disabled" else service.state
    return GatewayStatus(
        state=state,
        listen=", ".join(overview.get("listening", [])) or table.listen,
        name=table.name,
        pid=service.pid,
        restarts=service.restarts,
        reason=service.reason,
        log=service.log,
        overview=overview,
    )


class TokenName(msgspec.Struct):
    """The name of a user."""

    name: str


class NewToken(msgspec.Struct):
    """A new token; it is not shown again."""

    name: str
    token: str


class KnownToken(msgspec.Struct, rename="camel"):
    """A user who has a token."""

    name: str
    created_at: str


class KnownTokens(msgspec.Struct):
    """All users who have a token."""

    tokens: list[KnownToken]


@plugin.method("gateway.newToken", admin=True)
async def new_token(params: TokenName, ctx: Context) -> NewToken:
    """Create a token for a user of the gateway; it is shown only once."""
    with _refusing():
        return NewToken(params.name, _process().tokens.new(params.name))


@plugin.method("gateway.listTokens", admin=True)
async def list_tokens(params: Nothing, ctx: Context) -> KnownTokens:
    """List the users of the gateway that have a token."""
    with _refusing():
        found = _process().tokens.list()
    return KnownTokens([KnownToken(each.name, each.created_at) for each in found])


@plugin.method("gateway.revokeToken", admin=True)
async def revoke_token(params: TokenName, ctx: Context) -> Nothing:
    """Forget the token of a user of the gateway and close the connections that came with it."""
    with _refusing():
        _process().tokens.revoke(params.name)
    return Nothing()


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse a call with what is wrong with its name, or with the file of tokens."""
    try:
        yield
    except BusdError as problem:
        raise Refuse(str(problem)) from None


@plugin.method("gateway.restart", admin=True)
async def restart(params: Nothing, ctx: Context) -> GatewayStatus:
    """End the gateway and start it again; its clients reconnect. Return when it runs."""
    process = _process()
    if not process.table.enabled:
        raise Refuse("the gateway is disabled: set gateway.enabled and run `busd reload`")
    await process.restart()
    service = process.service
    if service.state == "failed":
        raise Refuse(f"the gateway cannot start: {service.reason}")
    return GatewayStatus(
        service.state, process.table.listen, process.table.name, service.pid, reason=service.reason
    )


def _process() -> GatewayProcess:
    if not _processes:
        raise Refuse("the gateway is not ready", retry_seconds=1)
    return _processes[0]


async def _overview(name: str, ctx: Context) -> dict[str, Any]:
    """Return what the gateway answers; one that runs as a unit of its own does so, too."""
    if not ctx.is_present(name):
        return {}
    with anyio.move_on_after(_ANSWER_SECONDS):
        receipt = await ctx.send(name, {"type": "gateway_status", "content": {}})
        for ack in receipt.acks:
            if ack.success:
                found: dict[str, Any] = msgspec.json.decode(ack.payload)
                return found
    return {}
