"""Import plugins from their source only.

By default Python prefers the bytecode in `__pycache__`, or a `.pyc` next to the source, which need
not match the source. Only bundled plugins, next to busd's own bytecode, are imported as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType


class SourceOnlyLoader(SourceFileLoader):
    """Compile a module each time; neither read nor write bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class PluginFinder:
    """Find the modules of the package that holds all plugins, and no others."""

    def __init__(self, package: str, bundled: Path) -> None:
        self._prefix = f"{package}."
        self._bundled = bundled

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a plugin's module; raise ModuleNotFoundError if there is none.

        With None, Python would continue with its own finders.
        """
        if not fullname.startswith(self._prefix):
            return None
        for folder in path or ():
            if spec := self._find_in(fullname, folder, target):
                return spec
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

    def _find_in(self, fullname: str, folder: str, target: ModuleType | None) -> ModuleSpec | None:
        if Path(folder).is_relative_to(self._bundled):
            return PathFinder.find_spec(fullname, [folder], target)
        # Created each time: a finder caches the content of a folder, and a file may be new.
        finder = FileFinder(
            folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceOnlyLoader, SOURCE_SUFFIXES)
        )
        return finder.find_spec(fullname, target)


def import_source_only(package: str, bundled: Path) -> None:
    """Install a PluginFinder for the modules of `package`."""
    if not any(isinstance(finder, PluginFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PluginFinder(package, bundled))
