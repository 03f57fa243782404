"""Examine the guard: the unit that ends the workers of a bus after it, where systemd runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from busd.ops.finding import Finding, run_quietly

# In the folder `units` of the state directory: the bus that a guard watches, by its pid.
_FILE = re.compile(r"(busd-guard-[0-9a-f]+)-(keep|[0-9]+)\.pid")
_LIST = ("list-units", "--plain", "--no-legend", "--full", "--no-pager", "--state=active")


def check_guard(state: Path) -> Iterator[Finding]:
    """Does the guard of a running bus run? Nothing is said of a bus that has none."""
    for file in sorted(state.glob("units/busd-guard-*.pid")):
        name = _FILE.fullmatch(file.name)
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
    said = [run_quietly(["systemctl", flavour, *_LIST, pattern]) for flavour in flavours]
    answers = [answer for answer in said if answer is not None]
    if not answers:
        return None
    return [line.split()[0] for answer in answers for line in answer.splitlines() if line]
