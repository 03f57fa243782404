"""The loader: finds plugins in folders and installed packages, and imports them.

All folders together are one package, `busd_plugins`: a plugin's modules import each other as
`busd_plugins.NAME.module`, wherever its folder is.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import anyio
import msgspec

from busd.plugin.file_safety import find_danger, find_danger_above
from busd.plugin.plugin import Plugin
from busd.plugin.source_only import import_source_only
from busd.vocabulary.payload import type_name_of

PACKAGE = "busd_plugins"
ENTRY_POINTS = "busd.plugins"
_POLL_SECONDS = 0.005
Fingerprint = tuple[tuple[str, int, int, int], ...]


class Candidate(msgspec.Struct, frozen=True):
    """A possible plugin, not imported yet."""

    name: str  # the module's; the plugin's own may differ
    origin: str  # the file or folder, or the entry point
    module: str
    attribute: str = "plugin"
    fingerprint: Fingerprint = ()  # of its files: it changes when they do
    danger: str = ""  # why it must not be imported

    @property
    def is_bundled(self) -> bool:
        """True if the plugin comes with busd."""
        return Path(self.origin).is_relative_to(bundled_folder())


class LoadedPlugin(msgspec.Struct, frozen=True):
    """A plugin that was imported."""

    candidate: Candidate
    plugin: Plugin
    about: str  # the first line of its docstring
    types: dict[str, type]  # the message types it defines or takes


class BadPlugin(msgspec.Struct, frozen=True):
    """A plugin that cannot be used, and the reason."""

    candidate: Candidate
    reason: str
    problem: BaseException | None = None


def bundled_folder() -> Path:
    """Return the folder of the plugins that come with busd."""
    package = Path(__file__).parent.parent
    installed = package / "bundled_plugins"
    return installed if installed.is_dir() else package.parent / "plugins"


def default_folders() -> list[Path]:
    """Return the folders that are always searched: the bundled, and the user's or system's."""
    return [bundled_folder(), _settings_folder() / "plugins"]


def _settings_folder() -> Path:
    """Return the folder of busd.toml, which systemd sets if it has started us."""
    if given := os.environ.get("CONFIGURATION_DIRECTORY"):
        return Path(given.split(":")[0])
    if user := os.environ.get("XDG_CONFIG_HOME"):
        return Path(user) / "busd"
    return Path("/etc/busd") if os.geteuid() == 0 else Path.home() / ".config/busd"


def use_folders(folders: Iterable[Path]) -> None:
    """Set these folders as the search path of the package `busd_plugins`."""
    package = sys.modules.get(PACKAGE)
    if package is None:
        package = ModuleType(PACKAGE, "All plugins.")
        sys.modules[PACKAGE] = package
    package.__path__ = [str(folder) for folder in folders]
    import_source_only(PACKAGE, bundled_folder())
    importlib.invalidate_caches()


def find_candidates(extra_folders: Iterable[str] = ()) -> list[Candidate]:
    """Search all folders and installed packages, without importing anything."""
    bundled, *others = [*default_folders(), *map(_at_home, extra_folders)]
    found = list(_in_folder(bundled, is_ours=True))
    safe = [bundled]
    for folder in dict.fromkeys(others):
        if danger := find_danger(folder, is_deep=False) or find_danger_above(folder):
            found.append(Candidate(folder.name, str(folder), "", danger=danger))
        elif folder.is_dir():
            found += _in_folder(folder, is_ours=False)
            safe.append(folder)
    use_folders(safe)
    return [*found, *_installed()]


def _at_home(folder: str) -> Path:
    try:
        return Path(folder).expanduser()
    except RuntimeError:
        return Path(folder)  # "~name" of an unknown user: no such folder


def _in_folder(folder: Path, *, is_ours: bool) -> Iterator[Candidate]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            is_package = (entry / "__init__.py").is_file()
        except OSError as problem:
            reason = f"cannot look into {entry}: {problem.strerror}"
            yield Candidate(entry.name, str(entry), "", danger=reason)
            continue
        if not is_package and not (entry.suffix == ".py" and entry.is_file()):
            continue
        name = entry.name if is_package else entry.stem
        if not name.isidentifier() or name.startswith("_"):
            continue
        # The bundled folder is as safe as busd itself, next to it.
        danger = "" if is_ours else find_danger(entry, is_deep=True)
        yield Candidate(
            name,
            str(entry),
            f"{PACKAGE}.{name}",
            fingerprint=_fingerprint(entry),
            danger=danger,
        )


def _installed() -> Iterator[Candidate]:
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        yield Candidate(
            point.name, f"entry point {point.value}", point.module, point.attr or "plugin"
        )


def _fingerprint(entry: Path) -> Fingerprint:
    files = sorted(entry.rglob("*.py")) if entry.is_dir() else [entry]
    marks: list[tuple[str, int, int, int]] = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue  # removed meanwhile
        marks.append((str(file), status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(marks)


async def load(candidate: Candidate, seconds: float) -> LoadedPlugin | BadPlugin:
    """Import a plugin, again if it was imported before; undo everything if that fails.

    This happens in a separate thread, because a module may do anything when it is imported: a
    thread that hangs is abandoned.
    """
    if candidate.danger:
        return BadPlugin(candidate, candidate.danger)
    result: list[LoadedPlugin | BadPlugin] = []
    thread = threading.Thread(target=lambda: result.append(_load(candidate)), daemon=True)
    thread.start()
    with anyio.move_on_after(seconds):
        while thread.is_alive():
            await anyio.sleep(_POLL_SECONDS)  # rare and short: a thread cannot wake both loops
    return result[0] if result else BadPlugin(candidate, f"import took longer than {seconds:g} s")


def _load(candidate: Candidate) -> LoadedPlugin | BadPlugin:
    # At first only its module `settings` may have been imported (see declared.py): keep that one.
    old = _take_modules(candidate) if candidate.module in sys.modules else {}
    try:
        module = importlib.import_module(candidate.module)
        loaded = _read(candidate, module)
    except BaseException as problem:  # `sys.exit()` in a plugin must not end the daemon
        loaded = BadPlugin(candidate, f"import failed: {_said(problem)}", problem)
    if isinstance(loaded, BadPlugin) and candidate.fingerprint:
        _take_modules(candidate)
        sys.modules.update(old)
    return loaded


def _read(candidate: Candidate, module: ModuleType) -> LoadedPlugin | BadPlugin:
    plugin = module
    for name in candidate.attribute.split("."):
        plugin = getattr(plugin, name, None)  # type: ignore[assignment]
    if not isinstance(plugin, Plugin):
        return BadPlugin(candidate, f"there is no Plugin called {candidate.attribute} in it")
    about = (module.__doc__ or "").strip().split("\n")[0]
    return LoadedPlugin(candidate, plugin, about, _types(module) | plugin.types)


def _types(module: ModuleType) -> dict[str, type]:
    """Return the message types that a module defines itself."""
    return {
        type_name_of(each): each
        for each in vars(module).values()
        if isinstance(each, type) and type_name_of(each) and each.__module__ == module.__name__
    }


def _take_modules(candidate: Candidate) -> dict[str, ModuleType]:
    """Remove the modules of a plugin, with the bytecode of a bundled one.

    Bytecode is matched by the size and mtime (in seconds) of the source: too coarse for a file
    that has just changed.
    """
    if not candidate.fingerprint:
        return {}  # an installed package is imported once
    taken = _modules(candidate)
    for name in taken:
        del sys.modules[name]
    for file, *_ in candidate.fingerprint if taken and candidate.is_bundled else ():
        try:
            Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)
        except OSError:
            pass  # a read-only folder: no bytecode is stored there either
    importlib.invalidate_caches()
    return taken


def _modules(candidate: Candidate) -> dict[str, ModuleType]:
    prefix = f"{candidate.module}."
    return {
        name: module
        for name, module in list(sys.modules.items())
        if name == candidate.module or name.startswith(prefix)
    }


def _said(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"
