"""The table `[gateway]`: where the gateway listens, who may come, and what it keeps."""

from __future__ import annotations

import ipaddress
import re
from importlib.util import find_spec
from typing import Annotated, Literal

import msgspec

from busd.errors import ConfigError
from busd.gateway.store_limits import StoreLimits
from busd.quantities import Bytes, Count, MemoryBytes, Rate, Seconds, about

DEFAULT_LISTEN = "127.0.0.1:7893"
_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d{1,5})")


class ClientLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the clients of a gateway may use."""

    clients: Annotated[Count, about("Maximum number of connections.")] = 10_000
    clients_per_user: Annotated[Count, about("Maximum number of connections of one user.")] = 2_500
    unknown_clients: Annotated[
        Count, about("Maximum number of connections that have not authenticated yet.")
    ] = 256
    authenticate_seconds: Annotated[
        Seconds, about("Time a new connection has to authenticate.")
    ] = 10.0
    frames_per_second: Annotated[
        Rate, about("Frames of one client per second, on average; more are refused.")
    ] = 50.0
    frames_at_once: Annotated[
        Count, about("Frames that a client may send at once after a pause.")
    ] = 200
    conversations_per_minute: Annotated[
        Rate,
        about("Conversations per minute in which one user, but the owner, may get a new agent."),
    ] = 20.0
    conversations_at_once: Annotated[
        Count, about("Conversations that a user may begin at once after a pause.")
    ] = 60
    unsent_bytes: Annotated[
        MemoryBytes, about("Data a client has not read yet, beyond which it is disconnected.")
    ] = 4 * 1024 * 1024
    ping_seconds: Annotated[
        Seconds, about("Interval of the pings that find connections that are lost.")
    ] = 25.0


class GatewayTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The gateway: a process of its own that lets clients of other chat formats in."""

    enabled: Annotated[
        bool, about("Start the gateway with the bus; needs `pip install 'busd[gateway]'`.")
    ] = False
    name: Annotated[str, about("Name of the gateway on the bus.")] = "gateway"
    listen: Annotated[
        str, about("Address to listen on: an IP address or `localhost`, and a port.")
    ] = DEFAULT_LISTEN
    dialects: Annotated[
        list[str], about("Chat formats to serve, by the names of their plugins.")
    ] = msgspec.field(default_factory=lambda: ["tkr", "group", "stage", "agentiq"])
    agent: Annotated[
        str,
        about(
            "Who answers words that name no agent: `system:route`, or an agent such as `agent:x`."
        ),
    ] = "system:route"
    identify_loopback: Annotated[
        bool, about("Let programs of the gateway's own user on this host in without a token.")
    ] = True
    allowed_origins: Annotated[list[str], about("Web sites whose pages may connect.")] = []
    allowed_hosts: Annotated[
        list[str], about("Additional names of this host in the requests of browsers.")
    ] = []
    rooms: Annotated[
        Literal["members", "open"],
        about("Who may enter a room: `members`, or every authenticated user (`open`)."),
    ] = "members"
    turn_seconds: Annotated[
        Seconds, about("Time after which a turn without a sign of its agent has failed.")
    ] = 900.0
    link_seconds: Annotated[
        Seconds, about("Time for which a link to a file of a conversation is valid.")
    ] = 3_600.0
    drain_seconds: Annotated[
        Seconds, about("Time that a stopping gateway leaves its clients for what they began.")
    ] = 5.0
    restarts: Annotated[
        Count, about("Consecutive failures after which the bus does not restart it.")
    ] = 10
    memory_max_bytes: Annotated[Bytes | None, about("Memory of the process of the gateway.")] = None
    limits: ClientLimits = ClientLimits()
    store: StoreLimits = StoreLimits()


class GatewaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tables of the settings file that are the gateway's."""

    gateway: GatewayTable = GatewayTable()


def check_gateway(settings: GatewaySettings) -> None:
    """Raise ConfigError for what the types cannot express."""
    table = settings.gateway
    host, _ = parse_listen(table.listen)
    if host not in ("localhost", "::1") and not ipaddress.ip_address(host).is_loopback:
        # Tokens and words would cross the network in the clear.
        raise ConfigError(
            f"gateway.listen: {table.listen} is no loopback address; "
            "put a proxy with TLS in front of the gateway"
        )
    if not table.name or ":" in table.name or not re.fullmatch(r"[\w.-]{1,64}", table.name):
        raise ConfigError(f"gateway.name: {table.name!r} must be a word without a prefix")
    if table.agent != "system:route" and not table.agent.startswith("agent:"):
        raise ConfigError(
            f"gateway.agent: {table.agent!r} must be system:route or begin with agent:"
        )


def missing_packages() -> list[str]:
    """Return the packages of the extra `busd[gateway]` that are not installed."""
    return [package for package in ("starlette", "uvicorn", "nh3") if find_spec(package) is None]


def parse_listen(text: str) -> tuple[str, int]:
    """Return host and port; raise ConfigError for anything else than HOST:PORT."""
    found = _LISTEN.fullmatch(text)
    host = (found["v6"] or found["host"]) if found else ""
    port = int(found["port"]) if found else 0
    try:
        if found and host != "localhost":
            ipaddress.ip_address(host)
        elif not found:
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"gateway.listen: {text!r} must be like {DEFAULT_LISTEN} or [::1]:7893"
        ) from None
    if port > 65_535:
        raise ConfigError(f"gateway.listen: there is no port {port}")
    return host, port
