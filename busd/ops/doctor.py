"""Examine a set-up: every check gives findings, and each says how to mend what is wrong."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from busd import __version__
from busd.errors import BusdError, ConfigError
from busd.finding import Finding
from busd.ops.doctor_bus import (
    AskedBus,
    ask_bus,
    check_bus,
    check_no_bus,
    check_socket,
    configured_places,
    find_examined,
    listening_places,
)
from busd.ops.doctor_units import SPARE_FILES, check_guard, examine_units, has_failed, run_quietly
from busd.ops.install import Layout
from busd.ops.tokens import TOKEN_FILES, check_private
from busd.plugin.file_safety import find_danger, find_danger_above
from busd.settings.config import Settings, default_settings, load_settings
from busd.settings.doubts import check_listening, find_doubts
from busd.wire.places import state_directory

_MIB = 1024 * 1024
_SCARCE_BYTES, _LOW_BYTES = 64 * _MIB, 512 * _MIB
_FIRST_YEAR = 2025  # there was no busd before


def examine(layout: Layout, config: Path | None, given: str | None) -> Iterator[Finding]:
    """Check everything; `given` is the address of the bus, if one was specified."""
    yield Finding("busd", "ok", f"version {__version__}")
    settings, doubts = default_settings(), list[Finding]()
    named = os.environ.get("BUSD_CONFIG")
    path = config or (Path(named) if named else layout.config)
    try:
        yield from check_config(layout, path)
        settings = load_settings(str(path) if path.exists() else None, {})
        yield from check_listening(settings)
        doubts = list(find_doubts(settings))
    except ConfigError as problem:
        yield Finding("configuration", "problem", str(problem), f"edit {path}")
    except OSError as problem:
        words = f"cannot read {path}: {problem.strerror}"
        yield Finding("configuration", "problem", words, f"see to it that you may read {path}")
    places = configured_places(layout, settings)
    asked = trouble = None
    if has_failed(layout) and given is None:
        places = []  # to knock would start it again, and again in vain
    else:
        address = find_examined(given, places)
        try:
            asked = ask_bus(address)
        except BusdError as problem:
            trouble = problem
    yield from _compare(doubts, asked)
    state = _state_folder(layout, settings, asked)
    yield from check_state(layout, state)
    yield from check_clock()
    yield from check_file_limit(settings.wire.max_connections)
    yield from examine_units(layout, settings.wire.max_connections)
    yield from check_guard(state)
    if asked is not None:
        for place in listening_places(asked, places):
            yield from check_socket(layout, place)
        yield from check_bus(layout, asked)
    elif trouble is not None:
        yield from check_no_bus(layout, address, places, trouble)


def _compare(doubts: list[Finding], asked: AskedBus | None) -> Iterator[Finding]:
    """Yield what we doubt and what the bus doubts: it may see programs that we do not."""
    theirs = asked.about.findings if asked and asked.about else None
    for doubt in doubts:
        if theirs is None or doubt in theirs or doubt.level != "problem":
            yield doubt
        else:
            words = f"{doubt.says}; the running bus does not report this"
            yield Finding(doubt.item, "warning", words, f"{doubt.fix}; or busd reload")
    yield from (each for each in theirs or () if each not in doubts)


def _state_folder(layout: Layout, settings: Settings, asked: AskedBus | None) -> Path:
    if asked and asked.about and asked.address.is_loopback:
        return Path(asked.about.state)
    is_default = settings.state == str(state_directory())
    return layout.state if is_default else Path(settings.state)


def check_config(layout: Layout, path: Path) -> Iterator[Finding]:
    """Check that the settings file, if any, is valid and no other user can change it."""
    if not path.exists():
        yield Finding("configuration", "ok", f"no {path}: all settings have their defaults")
        return
    load_settings(str(path), {})
    yield Finding("configuration", "ok", f"{path} is valid")
    facts = path.stat()
    if facts.st_uid not in (0, os.geteuid()):
        words = f"{path} belongs to uid {facts.st_uid}, who may change it"
        yield Finding("configuration", "problem", words, f"chown {os.geteuid()} {path}")
    if facts.st_mode & 0o022:
        words = f"{path} can be changed by others (mode {facts.st_mode & 0o777:04o})"
        yield Finding("configuration", "problem", words, f"chmod go-w {path}")
    if layout.flavour == "system" and not facts.st_mode & 0o004:
        words = f"the service cannot read {path}: it runs as a user of its own"
        yield Finding("configuration", "problem", words, f"chmod o+r {path}")


def check_state(layout: Layout, folder: Path) -> Iterator[Finding]:
    """Is the state directory ours alone, and is there room?"""
    try:
        facts = folder.stat()
    except FileNotFoundError:
        yield Finding("state directory", "ok", f"{folder} will be made when busd first starts")
    except OSError as problem:
        words = f"cannot look into {folder}: {problem.strerror}"
        yield Finding("state directory", "problem", words, "run this as the user of the bus")
        return
    else:
        yield from _check_owner(layout, folder, facts)
        if layout.flavour == "user":
            yield from _check_token_files(folder)
    yield from _check_space(folder)


def _check_owner(layout: Layout, folder: Path, facts: os.stat_result) -> Iterator[Finding]:
    if not stat.S_ISDIR(facts.st_mode):
        words = f"{folder} is not a folder"
        yield Finding("state directory", "problem", words, f"mv {folder} {folder}.old")
        return
    if layout.flavour == "user" and facts.st_uid != os.geteuid():
        words = f"{folder} belongs to uid {facts.st_uid}, not to you"
        fix = f"chown -R {os.geteuid()} {folder}"
        yield Finding("state directory", "problem", words, fix)
    elif danger := find_danger(folder, is_deep=False) or find_danger_above(folder):
        says, _, fix = danger.partition("; ")
        words = f"a bus does not start with this state directory: {says}"
        yield Finding("state directory", "problem", words, fix.removeprefix("run: "))
    elif facts.st_mode & 0o077:
        words = f"others may look into {folder} (mode {facts.st_mode & 0o777:04o})"
        yield Finding("state directory", "warning", words, f"chmod 0700 {folder}")
    else:
        yield Finding("state directory", "ok", f"{folder} is private")


def _check_token_files(folder: Path) -> Iterator[Finding]:
    for path in (folder / name for name in TOKEN_FILES):
        try:
            check_private(path)
        except OSError:
            continue  # none there, or the folder itself is what is wrong
        except ConfigError as problem:
            yield Finding("tokens", "problem", str(problem), f"chmod 0600 {path}, or rm {path}")


def _check_space(folder: Path) -> Iterator[Finding]:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    disk = os.statvfs(there)
    free = disk.f_bavail * disk.f_frsize
    words = f"{free // _MIB} MiB free at {there}"
    if disk.f_flag & os.ST_RDONLY:
        words, fix = f"{there} is read-only", "mount it writable, or choose another with --state"
        yield Finding("free space", "problem", words, fix)
    elif free < _SCARCE_BYTES:
        yield Finding("free space", "problem", words, "make room: messages could not be kept")
    elif free < _LOW_BYTES:
        yield Finding("free space", "warning", words, "make room soon")
    else:
        yield Finding("free space", "ok", words)


def check_clock() -> Iterator[Finding]:
    """Is the time plausible? Message ids and the activity log are ordered by it."""
    now = datetime.now(UTC)
    installed = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    words = f"it is {now:%Y-%m-%d %H:%M} UTC"
    fix = "timedatectl set-ntp true"
    if now.year < _FIRST_YEAR or (installed - now).days >= 1:
        words = f"{words}, before this busd was installed ({installed:%Y-%m-%d})"
        yield Finding("clock", "problem", words, fix)
        return
    said = run_quietly(["timedatectl", "show", "--property=NTPSynchronized", "--value"])
    if said == "no":
        yield Finding("clock", "warning", f"{words}; not synchronised with other hosts", fix)
    else:
        also = "synchronised" if said == "yes" else "whether it is synchronised is not known"
        yield Finding("clock", "ok", f"{words}; {also}")


def check_file_limit(max_connections: int) -> Iterator[Finding]:
    """May this user have as many connections as the settings allow?"""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    words = f"{hard} open files allowed, {max_connections} connections configured"
    if hard == resource.RLIM_INFINITY or hard >= max_connections + SPARE_FILES:
        yield Finding("file limit", "ok", words)
    else:
        fix = f"raise LimitNOFILE= (ulimit -Hn), or set wire.max_connections = {hard // 2}"
        yield Finding("file limit", "warning", words, fix)
