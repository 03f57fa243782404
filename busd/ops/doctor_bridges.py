"""Examine the bridges of a bus: their processes, and what each says of the other system."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from busd.finding import Finding

_CHATS = re.compile(r"[^:*?\[]+:\*")


class BridgeLink(msgspec.Struct, frozen=True):
    """What a bridge says of itself; a program that says nothing is not examined further."""

    state: str = ""
    detail: str = ""
    paused_until: str = ""
    is_disk_failing: bool = False


class BridgeAbout(msgspec.Struct):
    """A bridge, as the plugin that starts it describes it."""

    name: str
    kind: str
    state: str
    reason: str = ""
    restarts: int = 0
    status: BridgeLink = BridgeLink()


class PeerAbout(msgspec.Struct, rename="camel"):
    """A peer that is connected, as the bus describes it."""

    client_id: str
    subscriptions: list[str]


def check_sharing(peers: list[PeerAbout]) -> Iterator[Finding]:
    """Does each address of a chat have one bridge?

    A bridge has a name without a prefix and all addresses with one (`tg:*`). The bus is content
    with the first bridge that accepts a reply, also if that has no such chat.
    """
    bridges: dict[str, list[str]] = {}
    for peer in peers:
        for pattern in peer.subscriptions:
            if ":" not in peer.client_id and _CHATS.fullmatch(pattern):
                bridges.setdefault(pattern, []).append(peer.client_id)
    for pattern, names in sorted(bridges.items()):
        if len(names) > 1:
            words = f"{' and '.join(sorted(names))} both take the replies to {pattern}: "
            words += "users may get none, or two"
            fix = "give one of them a prefix of its own, such as bridges.telegram.prefix"
            yield Finding(f"bridge {pattern}", "problem", words, fix)


def check_bridges(bridges: list[BridgeAbout]) -> Iterator[Finding]:
    """Does each run that is to run, and can it do its work?"""
    for bridge in bridges:
        item = f"bridge {bridge.name}"
        if bridge.state == "running":
            yield from _check_link(item, bridge)
        elif bridge.state == "failed":
            fix = f"fix that, then busd bridges restart {bridge.name}; busd bridges logs shows more"
            yield Finding(item, "problem", f"it does not run: {bridge.reason}", fix)
        elif bridge.kind == "gateway" and bridge.state == "stopped":
            words, fix = "the gateway does not serve it", "set gateway.enabled; busd gateway status"
            yield Finding(item, "problem", words, fix)
        elif bridge.state == "stopped":
            words = f"its process has ended: {bridge.reason or 'it was stopped'}"
            yield Finding(item, "problem", words, f"busd bridges restart {bridge.name}")
        elif bridge.state != "disabled":
            words = f"it is {bridge.state}" + (f" after: {bridge.reason}" if bridge.reason else "")
            yield Finding(item, "warning", words, "look again in a moment")


def _check_link(item: str, bridge: BridgeAbout) -> Iterator[Finding]:
    """Check what a bridge that runs says of the other system, its restarts and its disk."""
    link, name = bridge.status, bridge.name
    said = f": {link.detail}" if link.detail else ""
    is_well = False
    if link.state == "unauthorized":
        fix = f"put a valid token into its file, then busd bridges restart {name}"
        yield Finding(item, "problem", f"the other system refuses its token{said}", fix)
    elif link.state == "conflict":
        words = f"another program uses the same token{said}"
        yield Finding(item, "problem", words, f"stop that one, or give {name} a token of its own")
    elif link.state == "failed":
        fix = f"busd bridges logs {name}"
        yield Finding(item, "problem", f"it cannot serve the other system{said}", fix)
    elif link.state == "waiting":
        fix = f"busd bridges logs {name}"
        yield Finding(item, "warning", f"it waits for the other system{said}", fix)
    else:
        is_well = True
    if link.is_disk_failing:
        fix = "make room on the disk of the state directory"
        yield Finding(item, "problem", "it cannot write what it has posted", fix)
    elif link.paused_until:
        words = f"it pauses until {link.paused_until}: the other system asked for that"
        yield Finding(item, "warning", words, "nothing is lost; send less if it happens often")
    elif bridge.restarts:
        words = f"it was restarted {bridge.restarts} times, the last time after: {bridge.reason}"
        yield Finding(item, "warning", words, f"busd bridges logs {name}")
    elif is_well:
        yield Finding(item, "ok", "it runs" + (", connected" if link.state else ""))
