"""Examine the bus that runs: where it listens, who may connect, and what it says is wrong."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec

from busd import __version__
from busd.client.client import Client
from busd.errors import BusdError, CallRefused
from busd.finding import Finding
from busd.ops.control import About, MailAbout
from busd.ops.doctor_bridges import BridgeAbout, PeerAbout, check_bridges, check_sharing
from busd.ops.doctor_units import held_sockets, is_systemd_host
from busd.ops.install import Layout
from busd.ops.mail_admin import MailboxSummary
from busd.plugin.host import PluginStatus
from busd.settings.config import Settings
from busd.wire.bus_address import DEFAULT_PORT, BusAddress, parse_bus_address
from busd.wire.places import default_listen, find_bus

_PATIENCE_SECONDS = 5.0
_PAGE, _MAX_PAGES = 1_000, 20
_NEARLY = 0.9  # of a limit
_MAX_NAMED = 5  # mailboxes that are nearly full


class GatewayAbout(msgspec.Struct):
    """The gateway that a bus starts, as its plugin describes it."""

    state: str
    listen: str
    reason: str = ""
    restarts: int = 0
    log: str = ""


class AskedBus(msgspec.Struct):
    """What a running bus has told us of itself; no more than its version if we are no admin."""

    address: BusAddress
    version: str
    millis: float
    about: About | None = None
    plugins: list[PluginStatus] = []
    mailboxes: list[MailboxSummary] = []  # the first ones, if there are very many
    gateway: GatewayAbout | None = None  # as far as a bus starts it
    bridges: list[BridgeAbout] = []
    peers: list[PeerAbout] = []


# Where it is


def configured_places(layout: Layout, settings: Settings) -> list[BusAddress]:
    """Return the addresses that a bus with these settings listens on."""
    held = held_sockets(layout)
    if settings.listen != default_listen():
        opened = [parse_bus_address(text) for text in settings.listen]
        known = [address for address in opened if address.scheme == "unix" or address.port]
        return [*held, *(address for address in known if address not in held)]
    if held:
        return held
    if layout.flavour == "system":  # the caller may have other defaults than the bus
        tcp = BusAddress("tcp", host="127.0.0.1", port=DEFAULT_PORT)
        return [BusAddress("unix", str(layout.socket)), tcp]
    return [parse_bus_address(text) for text in default_listen()]


def find_examined(given: str | None, places: list[BusAddress]) -> BusAddress:
    """Return the address to ask: the one that was named, else the first that is configured."""
    if given or os.environ.get("BUSD_ADDRESS") or os.environ.get("BUB_BUS_URL") or not places:
        return find_bus(given)
    return places[0]


def ask_bus(address: BusAddress) -> AskedBus:
    """Query the status of the bus; raise BusdError if it does not answer."""
    return anyio.run(_ask, address)


async def _ask(address: BusAddress) -> AskedBus:
    started = time.monotonic()
    info: dict[str, Any] = {"name": "busd doctor", "version": __version__}
    async with Client(
        f"cli:{os.getpid()}",
        address=str(address),
        token=address.token,
        info=info,
        timeout_seconds=_PATIENCE_SECONDS,
    ) as bus:
        described = await bus.call("rpc.discover")
        millis = (time.monotonic() - started) * 1000
        asked = AskedBus(address, str(described["info"]["version"]), millis)
        try:
            asked.about = msgspec.convert(await bus.call("bus.about"), About)
            listed = (await bus.call("bus.listPlugins"))["plugins"]
            asked.plugins = msgspec.convert(listed, list[PluginStatus])
            asked.mailboxes = await _list_mailboxes(bus)
            asked.gateway = msgspec.convert(await bus.call("gateway.status"), GatewayAbout)
            bridges = (await bus.call("bridges.list"))["bridges"]
            asked.bridges = msgspec.convert(bridges, list[BridgeAbout])
            connections = (await bus.status())["connections"]
            asked.peers = msgspec.convert(connections, list[PeerAbout])
        except (CallRefused, msgspec.ValidationError):
            pass  # we are no admin there, or it is another version
    return asked


async def _list_mailboxes(bus: Client) -> list[MailboxSummary]:
    found: list[MailboxSummary] = []
    for _ in range(_MAX_PAGES):
        after = found[-1].address if found else ""
        page = await bus.call("bus.listMailboxes", {"after": after, "limit": _PAGE})
        found += msgspec.convert(page["mailboxes"], list[MailboxSummary])
        if not page["more"]:
            break
    return found


def listening_places(asked: AskedBus, places: list[BusAddress]) -> list[BusAddress]:
    """Return the addresses to check: what the bus says itself, not what it might have been told."""
    if not asked.address.is_loopback:
        return [asked.address]  # what it calls local is not so here
    if asked.about is None:
        return places if asked.address in places else [asked.address]
    return [parse_bus_address(text) for text in asked.about.listening]


# Its sockets


def check_socket(layout: Layout, address: BusAddress) -> Iterator[Finding]:
    """Check that the bus listens there, and that the socket has the right permissions."""
    family = socket.AF_UNIX if address.scheme == "unix" else socket.AF_INET
    if ":" in address.host:
        family = socket.AF_INET6
    with socket.socket(family) as sock:
        sock.settimeout(_PATIENCE_SECONDS)
        try:
            sock.connect(address.path if family == socket.AF_UNIX else (address.host, address.port))
        except OSError as problem:
            words = f"nobody answers at {address}: {problem.strerror or problem}"
            yield Finding("socket", "problem", words, start_words(layout))
            return
    yield Finding("socket", "ok", f"{address} is open")
    if family == socket.AF_UNIX:
        yield from _check_socket_mode(layout, Path(address.path))


def start_words(layout: Layout) -> str:
    """Return the commands that start a bus here."""
    return (
        f"{layout.systemctl} start busd.socket, or busd serve"
        if is_systemd_host()
        else "busd serve"
    )


def _check_socket_mode(layout: Layout, path: Path) -> Iterator[Finding]:
    file, folder = path.stat(), path.parent.stat()
    if folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX:
        words = f"others may put a socket of their own at {path}"
        yield Finding("socket", "problem", words, f"chmod go-w {path.parent}")
    if layout.flavour == "user" and file.st_uid != os.geteuid():
        words = f"{path} belongs to uid {file.st_uid}: this is not your bus"
        yield Finding("socket", "problem", words, f"find out who listens: ss -lxp src {path}")
    elif layout.flavour == "user" and file.st_mode & 0o077:
        words = f"others may connect to {path} (mode {file.st_mode & 0o777:04o})"
        yield Finding("socket", "warning", words, f"chmod 0600 {path}")


# What it says


def check_bus(layout: Layout, asked: AskedBus) -> Iterator[Finding]:
    """Is it the same version as we are, will its clients find it, and what does it complain of?"""
    address = asked.address
    if asked.version != __version__:
        words = f"the bus at {address} is version {asked.version}, this is {__version__}"
        restart = f"{layout.systemctl} restart busd, or " if is_systemd_host() else ""
        yield Finding("bus", "warning", words, f"{restart}busd stop, then busd serve")
    else:
        words = f"the bus at {address} answers in {asked.millis:.0f} ms, version {asked.version}"
        yield Finding("bus", "ok", words)
    if asked.about is None:
        words = "its settings and plugins were not checked: you are not an admin there"
        yield Finding("bus", "warning", words, "run this as the user of the bus")
        return
    yield from _check_finding(address, asked.about)
    if asked.about.refused:
        words = f"the last reload was refused, the older settings are in use: {asked.about.refused}"
        yield Finding("settings", "problem", words, "fix that, then run busd reload")
    yield from check_plugins(asked.plugins)
    if asked.gateway is not None:
        yield from check_gateway(asked.gateway)
    yield from check_bridges(asked.bridges)
    yield from check_sharing(asked.peers)
    if asked.about.mail is not None:
        yield from check_mail(asked.about.mail, asked.mailboxes)


def _check_finding(address: BusAddress, about: About) -> Iterator[Finding]:
    """Check that clients without an explicit address find this bus."""
    sought = find_bus()
    if address.is_loopback and str(sought) not in [str(address), *about.listening]:
        words = f"clients look for a bus at {sought}, where this one does not listen"
        yield Finding("bus", "warning", words, f"export BUSD_ADDRESS={address}")


def check_gateway(gateway: GatewayAbout) -> Iterator[Finding]:
    """Does it run, if it is to run?"""
    if gateway.state == "running":
        words = f"it runs at {gateway.listen}"
        if not gateway.restarts:
            yield Finding("gateway", "ok", words)
            return
        words += f", restarted {gateway.restarts} times, the last time after: {gateway.reason}"
        yield Finding("gateway", "warning", words, f"its log says more: {gateway.log}")
    elif gateway.state == "failed":
        fix = "fix that, then busd gateway restart"
        yield Finding("gateway", "problem", f"it does not run: {gateway.reason}", fix)
    elif gateway.state in ("starting", "waiting"):
        words = f"it is {gateway.state}" + (f" after: {gateway.reason}" if gateway.reason else "")
        yield Finding("gateway", "warning", words, "look again in a moment")


def check_plugins(plugins: list[PluginStatus]) -> Iterator[Finding]:
    """Check that every plugin runs in its current version."""
    for plugin in plugins:
        if plugin.state == "faulty":
            words = f"does not run: {plugin.last_fault}"
        elif plugin.state == "outdated":
            words = f"the version from before its files changed still runs: {plugin.last_fault}"
        else:
            continue
        fix = f"fix {plugin.origin}, or add {plugin.name!r} to plugins.disabled; then busd reload"
        yield Finding(f"plugin {plugin.name}", "problem", words, fix)
    running = [plugin.name for plugin in plugins if plugin.state == "running"]
    if running:
        yield Finding("plugins", "ok", f"running: {', '.join(running)}")


def check_mail(mail: MailAbout, mailboxes: list[MailboxSummary]) -> Iterator[Finding]:
    """Check that mail can be written, that nothing was given up, and that there is room."""
    if mail.is_failing:
        words = "mail cannot be written: durable messages are refused"
        fix = "the log of the bus says why (mail.*); see to the disk of its state directory"
        yield Finding("mail", "problem", words, fix)
    if mail.dead:
        letters = "1 dead letter" if mail.dead == 1 else f"{mail.dead} dead letters"
        words = f"{letters}: messages that were given up"
        fix = "busd dlq ls shows why; busd dlq retry --all, or busd dlq drop --all"
        yield Finding("mail", "warning", words, fix)
    full = [
        box.address
        for box in mailboxes
        if box.count > _NEARLY * mail.box_count or box.bytes > _NEARLY * mail.box_bytes
    ]
    for address in full[:_MAX_NAMED]:
        words = f"the mailbox of {address} is over {_NEARLY:.0%} of its limit"
        fix = f"start who answers for it, busd mailbox purge {address}, or raise mail.box_count"
        yield Finding("mail", "warning", words, f"{fix} and mail.box_bytes")
    if len(full) > _MAX_NAMED:
        words = f"{len(full) - _MAX_NAMED} more mailboxes are over {_NEARLY:.0%} of their limit"
        yield Finding("mail", "warning", words, "busd mailbox ls")
    is_full = mail.count > _NEARLY * mail.total_count or mail.bytes > _NEARLY * mail.total_bytes
    if is_full:
        words = f"the mailboxes together are over {_NEARLY:.0%} of their limit"
        fix = "busd mailbox ls; raise mail.total_count and mail.total_bytes"
        yield Finding("mail", "warning", words, fix)
    if not (mail.is_failing or mail.dead or full or is_full):
        yield Finding("mail", "ok", f"{mail.count} messages wait, none was given up")


def check_no_bus(
    layout: Layout, address: BusAddress, places: list[BusAddress], problem: BusdError
) -> Iterator[Finding]:
    """No bus answers: which of its sockets are there?"""
    for place in places if address in places else []:
        yield from check_socket(layout, place)
    words = f"{start_words(layout)}; or name another with --address or $BUSD_ADDRESS"
    yield Finding("bus", "problem", str(problem), words)
