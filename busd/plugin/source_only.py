"""Import plugins from their source alone.

Python would rather read the bytecode in `__pycache__`, or a `.pyc` beside the source: what runs
would be something that nobody has read. Only bundled plugins, which lie beside busd's own bytecode,
are imported as usual.
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
        """Return where a plugin's module is; raise ModuleNotFoundError if it is nowhere.

        None would have Python look for it in its own way.
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
        # Made anew each time: it remembers what is in a folder, and a file may be new.
        finder = FileFinder(
            folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceOnlyLoader, SOURCE_SUFFIXES)
        )
        return finder.find_spec(fullname, target)


def import_source_only(package: str, bundled: Path) -> None:
    """Have the modules of `package` imported by a PluginFinder from now on."""
    if not any(isinstance(finder, PluginFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PluginFinder(package, bundled))
