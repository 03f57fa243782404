"""Mounting: HTTP applications of plugins, served by the gateway beside the dialects.

settings → `load_mounts` → `mounted` → routes of `make_app`
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from busd.errors import ConfigError
from busd.plugin.declared import bundled_settings
from busd.plugin.loader import BadPlugin, find_candidates, load

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from busd.settings.config import Settings


class Site(NamedTuple):
    """What an HTTP application of the gateway may know of its place."""

    settings: Any  # in force; Any: plugins declare their tables
    state: Path  # the state folder of the bus
    is_stopping: Callable[[], bool]  # no new work, and no long waits


class Mount(NamedTuple):
    """An HTTP application, and the plugin that has registered it."""

    plugin: str
    open: Callable[[Site], AbstractAsyncContextManager[Sequence[BaseRoute]]]


async def load_mounts(settings: Settings) -> list[Mount]:
    """Import the plugins whose settings enable their applications; raise ConfigError."""
    wanted = enabled_plugins(settings)
    if not wanted:
        return []
    candidates = {each.name: each for each in find_candidates(settings.plugins.folders)}
    found: list[Mount] = []
    for name in wanted:
        loaded = await load(candidates[name], settings.plugins.start_seconds)
        if isinstance(loaded, BadPlugin):
            raise ConfigError(f"the plugin {name}: {loaded.reason}")
        found += [Mount(name, function) for function in loaded.plugin.mounted]
    return found


def enabled_plugins(settings: Settings) -> list[str]:
    """Return the plugins whose applications the settings enable; none of them is imported."""
    return [name for name, its in bundled_settings().items() if its.serves_http(settings)]


@asynccontextmanager
async def mounted(
    mounts: Iterable[Mount], site: Site, taken: Iterable[str]
) -> AsyncIterator[list[BaseRoute]]:
    """Open the applications and yield their routes; raise ConfigError for a path of two."""
    owners = dict.fromkeys(taken, "the gateway")
    routes: list[BaseRoute] = []
    async with AsyncExitStack() as stack:
        for mount in mounts:
            for route in await stack.enter_async_context(mount.open(site)):
                path = getattr(route, "path", "")
                if owners.setdefault(path, mount.plugin) != mount.plugin:
                    both = f"{owners[path]} and the plugin {mount.plugin}"
                    raise ConfigError(f"{both} both serve {path}; change one of their paths")
                routes.append(route)
        yield routes
