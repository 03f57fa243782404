"""The shape of the code: imports point one way, and no module is a drawer for odds and ends."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import busd
from busd.plugin.loader import bundled_folder

ROOT = Path(busd.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
SUPERVISION = [path for path in SOURCES if path.parent.name in ("supervise", "keeper")]
SUPERVISION_KNOWS = ("errors", "unix_peer", "wire", "keeper", "supervise")
KEEPER = [*sorted((ROOT / "keeper").rglob("*.py")), ROOT / "unix_peer.py"]
PLUGINS = bundled_folder()
PLUGIN_SOURCES = sorted(PLUGINS.rglob("*.py"))
# Each layer may import itself and what stands to its left; `bus` and `client` are neighbours,
# but a client speaks of the same addresses and messages as the bus.
LAYERS = (
    "errors finding quantities unix_peer",
    "struct_faults",
    "wire",
    "rpc keeper database",
    "bus client",
    "vocabulary",
    "plugin agent journal supervise",
    "mail",
    "settings",
    "ops",
    "gateway bridge",
    "daemon chat",
    "cli",
)
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names.split()}
SHARED = {("client", "busd.bus.address"), ("client", "busd.bus.message")}
# What puts everything together, or stands outside: the package itself, `python -m busd`, the kit.
OUTSIDE = ("__init__", "__main__", "testing")
# Itself imported only where trio runs.
OF_TRIO = "busd.wire.trio_transport"
OF_IO = ("anyio", "os", "pathlib", "socket", "sqlite3", "subprocess", "threading")
PUBLIC_MODULES = (
    *(
        "busd.gateway",
        "busd.supervise",
        "busd.quantities",
        "busd.agent.program_check",
        "busd.database",
    ),
    *("busd.bridge", "busd.bridge.settings"),
)
DRAWERS = ("utils", "helpers", "common", "base", "manager", "types")


def module_name(path: Path) -> str:
    """Return the dotted name of a module of ours, without `busd.`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> list[tuple[int, str, bool]]:
    """Return each import of a module: line, what, and whether it happens when it is imported."""
    return list(find_imports(path, ast.parse(path.read_text())))


def find_imports(path: Path, tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    within = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
    }
    checked_only = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING"
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        is_at_once = id(node) not in within | checked_only
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, is_at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield node.lineno, node.module or "", is_at_once


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_a_module_imports_only_from_its_own_layer_and_those_below(path: Path) -> None:
    layer = module_name(path).split(".")[0]
    if layer in OUTSIDE:
        return
    assert layer in RANKS, f"{path}: no layer is called {layer!r}"
    for line, name, _ in imported(path):
        top, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if top != "busd" or not target:
            continue
        assert target in RANKS, f"{path}:{line}: {layer} imports {name}, which is no layer"
        is_below = target == layer or RANKS[target] < RANKS[layer]
        assert is_below or (layer, name) in SHARED, f"{path}:{line}: {layer} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_nothing_that_one_loop_only_has_is_imported_with_a_module(path: Path) -> None:
    if f"busd.{module_name(path)}" == OF_TRIO:
        return
    for line, name, is_at_once in imported(path):
        is_of_one_loop = name.split(".")[0] in ("asyncio", "trio", "uvloop") or name == OF_TRIO
        assert not (is_of_one_loop and is_at_once), f"{path}:{line}: imports {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "bus").rglob("*.py")), ids=module_name)
def test_the_bus_does_no_io(path: Path) -> None:
    for line, name, _ in imported(path):
        assert name.split(".")[0] not in OF_IO, f"{path}:{line}: imports {name}"


@pytest.mark.parametrize("path", KEEPER, ids=module_name)
def test_the_keeper_needs_only_the_standard_library(path: Path) -> None:
    """It is started without site packages, and has to be there in a few milliseconds."""
    for line, name, _ in imported(path):
        is_own = name == "busd.unix_peer" or f"{name}.".startswith("busd.keeper.")
        assert is_own or name.split(".")[0] in sys.stdlib_module_names, f"{path}:{line}: {name}"


@pytest.mark.parametrize("path", SUPERVISION, ids=module_name)
def test_supervision_knows_nothing_of_what_its_processes_are_for(path: Path) -> None:
    """Agents, bridges and gateways are all supervised by the same code: it knows no chats."""
    for line, name, _ in imported(path):
        top, _, rest = name.partition(".")
        is_ours = top in ("busd", "busd_plugins", "plugins")
        is_known = top == "busd" and rest.split(".")[0] in SUPERVISION_KNOWS
        assert is_known or not is_ours, f"{path}:{line}: imports {name}"
    found = re.search(
        r"(?i)\b(chats?|chat_\w+|talkto|tg_\w+|channels?|bridges?)\b", path.read_text()
    )
    assert found is None, f"{path}: mentions {found[0]}"


def test_the_guide_for_contributors_names_every_folder() -> None:
    folders = [path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()]
    guide = (ROOT.parent / "CONTRIBUTING.md").read_text()
    assert [each for each in folders if f"`busd/{each}`" not in guide] == []


OTHER_TESTS = (
    *("bad_input", "bench", "browser", "crash", "daemon", "data", "fairness", "packaging"),
    *("plugins", "properties", "reference", "simulation", "systemd"),
)


def test_the_tests_of_a_folder_are_in_a_folder_of_its_name() -> None:
    tests = Path(__file__).parent
    folders = {path.name for path in tests.iterdir() if path.is_dir() and path.name[0] not in "._"}
    code = {path.name for path in ROOT.iterdir() if path.is_dir()}
    assert folders - code == set(OTHER_TESTS)
    assert {path.name for path in (tests / "plugins").iterdir() if path.is_dir()} - {
        "__pycache__"
    } <= {path.name for path in PLUGINS.iterdir()}


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_no_module_is_a_drawer_for_odds_and_ends(path: Path) -> None:
    assert not set(module_name(path).split(".")) & set(DRAWERS)


@pytest.mark.parametrize("path", PLUGIN_SOURCES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_a_plugin_imports_of_us_only_public_names_and_of_plugins_only_itself(path: Path) -> None:
    """The public names are those of `busd` and of a few public modules, which say that they are.

    Only some plugins need these, and names such as `Report` or `Bytes` say little by themselves.
    """
    public = {"busd": busd} | {name: importlib.import_module(name) for name in PUBLIC_MODULES}
    own = f"busd_plugins.{path.relative_to(PLUGINS).parts[0].removesuffix('.py')}"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in public:
            unknown = {alias.name for alias in node.names} - set(public[node.module].__all__)
            assert not unknown, f"{path}:{node.lineno}: imports {unknown}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [] if node.level else [node.module or ""]
            for name in names:
                is_own = name == own or name.startswith(f"{own}.")
                is_foreign = name.split(".")[0] in ("busd", "busd_plugins") and not is_own
                assert not is_foreign, f"{path}:{node.lineno}: imports {name}"
