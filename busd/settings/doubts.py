"""Check settings that can be read: what a start would refuse, and likely mistakes.

A likely mistake produces a warning; the bus starts all the same.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from typing import Literal

import msgspec

from busd.agent.command import worker_command
from busd.agent.program_check import find_program_fault, has_openai_extra, openai_extra_fix
from busd.agent.settings import WorkerSettings
from busd.errors import ConfigError
from busd.settings.config import Settings, setting_names, variable_of, variables
from busd.wire.bus_address import parse_bus_address
from busd.wire.sockets import check_place
from busd.wire.tls_settings import Certificates

Level = Literal["ok", "warning", "problem"]
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


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one check found; `fix` is a command or a sentence."""

    item: str
    level: Level
    says: str
    fix: str = ""


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
    yield from _impatient_plugins(settings)
    for name, worker in settings.workers.items():
        yield from _missing_parts(name, worker)


def _unknown_variable(name: str, known: set[str]) -> Finding:
    """Return what becomes of a variable; never its value, which may be a secret of somebody's."""
    in_files = {variable_of(each): each for each in setting_names()}
    if name in in_files:
        words = f"${name} is ignored: only a file can say {in_files[name]}"
        return Finding("environment", "warning", words, f"unset {name}")
    near = difflib.get_close_matches(name, sorted(known), n=1)
    fix = f"did you mean {near[0]}?" if near else f"unset {name}, if it is meant for busd"
    return Finding("environment", "warning", f"${name} is ignored: there is no such setting", fix)


def _impatient_plugins(settings: Settings) -> Iterator[Finding]:
    """The plugin that ends the workers must be given the time that they are given."""
    workers, plugins = settings.agents.stop_seconds, settings.plugins.stop_seconds
    if settings.agents.when_bus_stops == "stop" and workers >= plugins:
        words = (
            f"agents.stop_seconds is {workers:g} and plugins.stop_seconds only {plugins:g}: "
            "a stopping bus would be gone before its workers"
        )
        fix = f"set plugins.stop_seconds to more than {workers:g}"
        yield Finding("configuration", "warning", words, fix)


def _missing_parts(name: str, worker: WorkerSettings) -> Iterator[Finding]:
    """Find a program that is not there, or an extra that is not installed: no agent would start."""
    try:
        worker_command(worker, "agent:x", "x", "/", "x")
    except ConfigError as problem:
        says = f"workers.{name}: {str(problem).removeprefix('workers: ')}"
        yield Finding("workers", "problem", says, f"change the table workers.{name}")
    for key, words in (("command", worker.command), ("agent", worker.agent)):
        # As its worker sees it; a relative path is one of the workspace, which nobody knows yet.
        if words and (fault := find_program_fault(words[0], worker.environment.get("PATH"))):
            fix = f"install it, or change workers.{name}.{key}"
            yield Finding("workers", "problem", f"workers.{name}.{key}: {fault}", fix)
    if worker.openai_url and not has_openai_extra():
        missing = f"workers.{name}.openai_url needs httpx, which is not installed"
        yield Finding("workers", "problem", missing, f"run: {openai_extra_fix()}")
