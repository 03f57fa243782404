"""Find the dialects: import the plugins that the settings name."""

from __future__ import annotations

from typing import Any, NamedTuple

import anyio

from busd.errors import ConfigError
from busd.gateway.dialect import Dialect
from busd.plugin.host import PluginSettings
from busd.plugin.loader import BadPlugin, find_candidates, load


class Route(NamedTuple):
    """A path of the gateway, and the dialect of the clients that connect to it."""

    path: str
    plugin: str
    about: str  # the first line of the plugin's docstring
    dialect: type[Dialect]


async def load_dialects(names: list[str], limits: PluginSettings) -> list[Route]:
    """Import the plugins of these names; raise ConfigError if one has no dialect, or two a path."""
    candidates = {each.name: each for each in find_candidates(limits.folders)}
    routes: dict[str, Route] = {}
    for name in dict.fromkeys(names):
        candidate = candidates.get(name)
        if candidate is None:
            raise ConfigError(f"gateway.dialects: there is no plugin {name!r}")
        loaded = await load(candidate, limits.start_seconds)
        if isinstance(loaded, BadPlugin):
            raise ConfigError(f"gateway.dialects: the plugin {name}: {loaded.reason}")
        if not loaded.plugin.dialects:
            raise ConfigError(f"gateway.dialects: the plugin {name} has no dialect")
        for path, dialect in loaded.plugin.dialects.items():
            if path in routes:
                both = f"{routes[path].plugin} and {name}"
                raise ConfigError(f"gateway.dialects: {both} both serve {path}")
            routes[path] = Route(path, name, loaded.about, _checked(name, dialect))
    return list(routes.values())


def find_dialects(names: list[str], limits: PluginSettings) -> list[Route]:
    """Do the same where no loop runs."""
    return anyio.run(load_dialects, names, limits)


def _checked(name: str, dialect: type[Any]) -> type[Dialect]:
    if not issubclass(dialect, Dialect):
        raise ConfigError(f"gateway.dialects: {name}: {dialect.__name__} is no Dialect")
    return dialect


def addresses_of(routes: list[Route], listen: str) -> dict[str, str]:
    """Return what clients connect to, and what each address is for: one address per dialect."""
    firsts = {each.dialect: each for each in reversed(routes)}
    return {_url(each, listen): each.about for each in routes if firsts[each.dialect] is each}


def _url(route: Route, listen: str) -> str:
    if route.dialect.namespaces:
        return f"http://{listen}{route.path}"
    return f"ws://{listen}{route.path.replace('{room}', 'ROOM')}"
