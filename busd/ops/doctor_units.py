"""Examine the units: are they installed, current and running, and does the workers' guard run?"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from busd import __version__
from busd.finding import Finding
from busd.ops.install import (
    OPTIONAL_UNITS,
    UNITS,
    Layout,
    files_for,
    find_program,
    read_text,
    written_by,
)
from busd.wire.bus_address import BusAddress, parse_bus_address

_ASKED = (
    "LoadState,FragmentPath,UnitFileState,ActiveState,SubState,Result,ExecMainStatus,"
    "NeedDaemonReload,ExecStart,LimitNOFILE"
)
_BAD_CONFIGURATION = "78"
SPARE_FILES = 100  # besides connections: the journal, the listeners, the loop

_PATIENCE_SECONDS = 5.0
# In the folder `units` of the state directory: the bus that a guard watches, by its pid.
_GUARD_FILE = re.compile(r"(busd-guard-[0-9a-f]+)-(keep|[0-9]+)\.pid")
_LIST_ALL = ("list-units", "--plain", "--no-legend", "--full", "--no-pager", "--all")
_LIST_UNITS = ("list-units", "--plain", "--no-legend", "--full", "--no-pager", "--state=active")

Facts = dict[str, str]  # what `systemctl show` says of a unit


def examine_units(layout: Layout, max_connections: int) -> Iterator[Finding]:
    """Check all that systemd has to do with the bus."""
    if not is_systemd_host():
        yield Finding("systemd", "ok", "this host does not run systemd; busd serve runs a bus")
        return
    said = {name: ask_systemd(layout, name) for name in UNITS}
    if any(facts is None for facts in said.values()):
        words = f"`{layout.systemctl}` does not answer"
        fix = "log in as this user (not by su), so that $XDG_RUNTIME_DIR is set"
        yield Finding("systemd", "warning", words, fix)
        return
    units = {name: facts or {} for name, facts in said.items()}
    if all(facts.get("LoadState") == "not-found" for facts in units.values()):
        yield Finding("systemd", "warning", "busd is not installed as a service", "busd install")
        return
    for name, facts in units.items():
        yield from check_unit_file(layout, name, facts)
        yield from check_unit_state(layout, name, facts, units)
    for name in _optional_units(layout):
        facts = ask_systemd(layout, name) or {}
        if facts.get("ActiveState") == "failed":
            yield _failure(layout, name, facts)
        elif facts.get("UnitFileState") == "enabled":
            yield from check_unit_file(layout, name, facts)
    yield from check_service(units["busd.service"], max_connections)
    if layout.flavour == "user":
        yield from check_linger()


def _optional_units(layout: Layout) -> list[str]:
    """Return the optional units; for a template, those of its instances that systemd knows."""
    found = [name for name in OPTIONAL_UNITS if "@" not in name]
    for template in (name for name in OPTIONAL_UNITS if "@" in name):
        words = [*layout.systemctl.split(), *_LIST_ALL, template.replace("@", "@*")]
        said = run_quietly(words) or ""
        # One that has failed may have a dot before its name.
        found += [word for line in said.splitlines() for word in line.split()[:2] if "@" in word]
    return found


def is_systemd_host() -> bool:
    return Path("/run/systemd/system").is_dir()


def ask_systemd(layout: Layout, unit: str) -> Facts | None:
    """Return what systemd knows of a unit; None if it does not answer."""
    said = run_quietly([*layout.systemctl.split(), "show", f"--property={_ASKED}", unit])
    if said is None:
        return None
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def has_failed(layout: Layout) -> bool:
    """True if the service is installed, was started and could not run."""
    return (ask_systemd(layout, "busd.service") or {}).get("ActiveState") == "failed"


def held_sockets(layout: Layout) -> list[BusAddress]:
    """Return the addresses that the socket unit listens on for us."""
    said = run_quietly([*layout.systemctl.split(), "show", "--property=Listen", "busd.socket"])
    found = re.findall(r"^Listen=(.*) \(Stream\)$", said or "", re.M)
    return [
        parse_bus_address(f"unix:{where}" if where.startswith("/") else f"tcp://{where}")
        for where in found
    ]


def check_unit_file(layout: Layout, name: str, facts: Facts) -> Iterator[Finding]:
    """Is it the unit that this version of busd brings?"""
    state = facts.get("LoadState", "")
    if state != "loaded":
        fix = f"{layout.systemctl} unmask {name}" if state == "masked" else "busd install"
        yield Finding(name, "problem", f"systemd says {state or 'nothing'}", fix)
        return
    path = Path(facts["FragmentPath"])
    wanted = {place.name: text for place, text, _ in files_for(layout, find_program())}
    found = read_text(path) or ""
    version = written_by(found)
    if version is None:
        words = f"{path} was changed by hand"
        fix = (
            f"move your changes to a drop-in ({layout.systemctl} edit {name}), busd install --force"
        )
        yield Finding(name, "warning", words, fix)
    elif found != wanted[name]:
        words = f"{path} is that of busd {version}, or of another copy of busd {__version__}"
        yield Finding(name, "warning", words, "busd install")
    else:
        yield Finding(name, "ok", f"{path} is that of busd {version}")
    if facts.get("NeedDaemonReload") == "yes":
        words = "systemd has not read the newest files yet"
        yield Finding(name, "warning", words, f"{layout.systemctl} daemon-reload")


def check_unit_state(
    layout: Layout, name: str, facts: Facts, units: dict[str, Facts]
) -> Iterator[Finding]:
    """Does it run, and will it after a reboot?"""
    state = facts.get("ActiveState", "")
    words = f"{state} ({facts.get('SubState', '')})"
    if state == "failed":
        yield _failure(layout, name, facts)
    elif state in ("active", "activating", "reloading"):
        yield Finding(name, "ok", words)
    elif name == "busd.service" and units["busd.socket"].get("ActiveState") == "active":
        yield Finding(name, "ok", f"{words}: starts with the first client")
    else:
        fix = f"{layout.systemctl} enable --now busd.socket busd.service"
        yield Finding(name, "problem", words, fix)
    if facts.get("UnitFileState") == "disabled":
        fix = f"{layout.systemctl} enable {name}"
        yield Finding(name, "warning", "will not start by itself after a reboot", fix)


def _failure(layout: Layout, name: str, facts: Facts) -> Finding:
    journal = "journalctl --user" if layout.flavour == "user" else "journalctl"
    code = f", exit code {facts['ExecMainStatus']}" if "ExecMainStatus" in facts else ""
    words = f"failed ({facts.get('Result', '')}{code})"
    fix = f"read {journal} -u {name} -n 20, then {layout.systemctl} reset-failed {name}"
    if facts.get("ExecMainStatus") == _BAD_CONFIGURATION:
        words = "failed: bad configuration"
        fix = f"mend {layout.config}, then {layout.systemctl} restart {name}"
    return Finding(name, "problem", words, fix)


def check_service(facts: Facts, max_connections: int) -> Iterator[Finding]:
    """Is the busd that the unit starts still there, and may it have enough connections?"""
    found = re.search(r"path=(.*?) ;", facts.get("ExecStart", ""))
    if found and not Path(found[1]).exists():
        words = f"the unit starts {found[1]}, which is not there"
        yield Finding("busd.service", "problem", words, "busd install, with the busd that is")
    limit = facts.get("LimitNOFILE", "")
    if limit.isdecimal() and int(limit) < max_connections + SPARE_FILES:
        words = f"LimitNOFILE={limit} is less than wire.max_connections = {max_connections} needs"
        fix = f"LimitNOFILE={max_connections + SPARE_FILES} in a drop-in"
        yield Finding("busd.service", "warning", words, fix)


def check_linger() -> Iterator[Finding]:
    """Does the bus of this user outlive the last log-out?"""
    user = getpass.getuser()
    said = run_quietly(["loginctl", "show-user", user, "--property=Linger", "--value"])
    lingers = said == "yes" or Path("/var/lib/systemd/linger", user).exists()
    if lingers:
        yield Finding("lingering", "ok", "the bus runs while you are not logged in, too")
    else:
        words = "the bus stops when you log out"
        yield Finding("lingering", "warning", words, "loginctl enable-linger")


def check_guard(state: Path) -> Iterator[Finding]:
    """Does the guard of a running bus run? Nothing is said of a bus that has none."""
    for file in sorted(state.glob("units/busd-guard-*.pid")):
        name = _GUARD_FILE.fullmatch(file.name)
        if name is None or not _is_alive(file):
            continue  # a bus that was killed; the next one removes it
        running = _running_units(f"{name[1]}*-{name[2]}.service")
        if running:
            yield Finding("guard", "ok", f"{running[0]} runs: workers end with the bus")
        elif running is not None:
            words = f"{file.stem}.service has ended, and systemd ended the workers with it"
            fix = "send a message: the next worker gets a new guard; journalctl says who ended it"
            yield Finding("guard", "warning", words, fix)


def _is_alive(file: Path) -> bool:
    try:
        return Path(f"/proc/{int(file.read_text())}").exists()
    except (OSError, ValueError):
        return False


def _running_units(pattern: str) -> list[str] | None:
    """List the active units of the managers that a bus may use; None if none of them answers."""
    flavours = ("--user", "--system") if os.geteuid() == 0 else ("--user",)
    said = [run_quietly(["systemctl", flavour, *_LIST_UNITS, pattern]) for flavour in flavours]
    answers = [answer for answer in said if answer is not None]
    if not answers:
        return None
    return [line.split()[0] for answer in answers for line in answer.splitlines() if line]


def run_quietly(command: list[str]) -> str | None:
    """Return what a program says, None if it is not there, fails or takes too long."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - the words are ours
            command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
