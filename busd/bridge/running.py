"""Run the bridge of a plugin in this process, until told to end."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import anyio
import structlog

from busd.bridge.bridge import Bridge
from busd.bridge.settings import BridgeTable, install_command, missing_packages
from busd.client.run import run_until_signal
from busd.errors import ConfigError
from busd.plugin.host import PluginSettings
from busd.plugin.loader import BadPlugin, find_candidates, load
from busd.plugin.plugin import BridgeProgram
from busd.settings.config import Settings
from busd.struct_faults import convert

log = structlog.get_logger("busd.bridge")

FOLDER = "bridges"  # within the state folder of the bus


def run_bridge(name: str, settings: Settings) -> None:
    """Run the bridge of the plugin of this name; raise ConfigError if it cannot start."""
    program = anyio.run(load_bridge, name, settings.plugins)
    kind = program.table
    if not issubclass(kind, BridgeTable):
        raise ConfigError(f"the plugin {name}: {kind.__name__} is no BridgeTable")
    if missing := missing_packages(kind):
        words = f"the bridge {name} needs {', '.join(missing)}, which is not installed"
        raise ConfigError(f"{words}; run: {install_command(kind)}")
    table = table_of(name, settings) or convert({}, kind, f"{FOLDER}.{name}")
    anyio.run(run_until_signal, lambda: _serve(program, table, Path(settings.state), name))


async def load_bridge(name: str, limits: PluginSettings) -> BridgeProgram:
    """Import a plugin and return its bridge; raise ConfigError if it has none."""
    candidates = {each.name: each for each in find_candidates(limits.folders)}
    candidate = candidates.get(name)
    if candidate is None:
        near = difflib.get_close_matches(name, sorted(candidates), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no plugin {name!r}{hint}")
    loaded = await load(candidate, limits.start_seconds)
    if isinstance(loaded, BadPlugin):
        raise ConfigError(f"the plugin {name}: {loaded.reason}")
    if loaded.plugin.bridge_program is None:
        raise ConfigError(f"the plugin {name} has no bridge")
    return loaded.plugin.bridge_program


def table_of(name: str, settings: Settings) -> Any:
    """Return the table of a bridge, None if it is missing; Any, because plugins declare them."""
    tables: Any = settings
    return getattr(tables.bridges, name, None)


async def _serve(program: BridgeProgram, table: BridgeTable, state: Path, name: str) -> None:
    bridge = Bridge(table.name, table.prefix, state=state / FOLDER / name)
    log.info("bridge.starting", bridge=name, name=table.name)
    await program.serve(bridge, table)
