"""Check settings that can be read: what a start would refuse, and likely mistakes.

A likely mistake produces a warning; the bus starts all the same.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

from busd.errors import ConfigError
from busd.finding import Finding
from busd.plugin.declared import bundled_settings
from busd.settings.config import Settings, setting_names, variable_of, variables
from busd.wire.bus_address import parse_bus_address
from busd.wire.sockets import check_place
from busd.wire.tls_settings import Certificates

# What clients and workers read, or are given: no settings of the bus.
OTHER_VARIABLES = (
    "BUSD_ADDRESS",
    "BUSD_CA_FILE",
    "BUSD_CLIENT_ID",
    "BUSD_CONFIG",
    "BUSD_KEEPER_HOME",
    "BUSD_KEEPER_MARK",
    "BUSD_KEEPER_PACKAGE",
    "BUSD_KEEPER_PID",
    "BUSD_MESSAGE_ID",
    "BUSD_REPLY_TYPE",
    "BUSD_SENDER",
    "BUSD_TALKTO",
    "BUSD_TOKEN_FILE",
    "BUSD_WORKERS_OF",
    "BUSD_WORKSPACE",
)


def check_listening(settings: Settings) -> Iterator[Finding]:
    """Raise ConfigError for settings that prevent listening; yield doubts about TLS."""
    for address in map(parse_bus_address, settings.listen):
        check_place(address, is_open=settings.policy == "open")
        if address.is_encrypted and not settings.tls.certificate:
            raise ConfigError(f"{address}: this bus has no certificate; see tls.certificate")
    if settings.tls.certificate:
        for warning in Certificates(settings.tls).warnings:
            yield Finding("certificate", "warning", warning, "see [tls] in the settings")


def find_doubts(settings: Settings) -> Iterator[Finding]:
    """Check the settings as a whole, and the environment they came from."""
    known = {*variables(), *OTHER_VARIABLES}
    for name in sorted(os.environ.keys() - known):
        if name.startswith("BUSD_"):
            yield _unknown_variable(name, known)
    for plugin, declared in bundled_settings().items():
        if plugin not in settings.plugins.disabled:
            yield from declared.find_doubts(declared.read(settings), settings.plugins)


def _unknown_variable(name: str, known: set[str]) -> Finding:
    """Return what becomes of a variable; never its value, which may be a secret of somebody's."""
    in_files = {variable_of(each): each for each in setting_names()}
    if name in in_files:
        words = f"${name} is ignored: only a file can say {in_files[name]}"
        return Finding("environment", "warning", words, f"unset {name}")
    near = difflib.get_close_matches(name, sorted(known), n=1)
    fix = f"did you mean {near[0]}?" if near else f"unset {name}, if it is meant for busd"
    return Finding("environment", "warning", f"${name} is ignored: there is no such setting", fix)
