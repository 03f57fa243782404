"""Install busd as a service: units for systemd and a busd.toml, written only over what is ours.

Each file ends with a line that says which busd wrote it, with a checksum: a file that still has
the right one was not changed since, and may be replaced by a newer busd without asking.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from busd import __version__
from busd.errors import BusdError
from busd.settings.defaults import encode_default_config
from busd.wire.bus_address import DEFAULT_PORT
from busd.wire.plain_file import write_plain_file

Flavour = Literal["user", "system"]
Action = Literal["written", "updated", "unchanged", "kept", "replaced"]

UNITS = ("busd.service", "busd.socket")
OPTIONAL_UNITS = (
    "busd-gateway.service",
    "busd-bridge@.service",
)  # not enabled by those who install
_STAMP = re.compile(r"^# busd (\S+) wrote this, sha256 ([0-9a-f]{64})\n\Z", re.M)
# The sandbox of the system service shows it nothing of what is there.
_HIDDEN_FROM_SERVICE = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - says so


@dataclass(frozen=True)
class Layout:
    """Where the files of a flavour are."""

    flavour: Flavour
    unit_folder: Path
    config: Path
    state: Path
    socket: Path
    root: Path = Path("/")  # packagers and tests install below a folder of their own

    @property
    def systemctl(self) -> str:
        return "systemctl --user" if self.flavour == "user" else "systemctl"

    def placed(self, path: Path) -> Path:
        """Return where a path of the installed system is now."""
        return self.root / path.relative_to("/")


class InstalledFile(msgspec.Struct, frozen=True):
    """What became of one file, and how it differs from what busd would have written."""

    path: str
    action: Action
    diff: list[str] = []


def find_layout(flavour: Flavour, root: Path = Path("/")) -> Layout:
    """Return the places of a flavour."""
    if flavour == "system":
        return Layout(
            flavour,
            Path("/etc/systemd/system"),
            Path("/etc/busd/busd.toml"),
            Path("/var/lib/busd"),
            Path("/run/busd/bus.sock"),
            root,
        )
    home = Path.home()
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    state = Path(os.environ.get("XDG_STATE_HOME") or home / ".local/state")
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    return Layout(
        flavour,
        config / "systemd/user",
        config / "busd/busd.toml",
        state / "busd",
        runtime / "busd/bus.sock",
        root,
    )


def install(
    layout: Layout, program: list[str], *, is_forced: bool = False, is_dry: bool = False
) -> list[InstalledFile]:
    """Write missing or outdated files; a modified file is kept unless forced."""
    return [
        _install_file(layout.placed(path), text, mode, is_forced=is_forced, is_dry=is_dry)
        for path, text, mode in files_for(layout, program)
    ]


def files_for(layout: Layout, program: list[str]) -> list[tuple[Path, str, int]]:
    """Return each file of a flavour: where it belongs, its text and its mode."""
    command = " ".join(map(_quoted, program))
    units = [
        (
            layout.unit_folder / name,
            _stamped((_unit_templates() / layout.flavour / name).read_text(), command),
            0o644,
        )
        for name in (*UNITS, *OPTIONAL_UNITS)
    ]
    places: dict[str, object] = {
        "listen": [f"unix:{layout.socket}", f"tcp://127.0.0.1:{DEFAULT_PORT}"],
        "state": str(layout.state),
    }
    config = encode_default_config(places, f"{layout.systemctl} reload busd")
    # The service of the system runs as a user of its own, and must be able to read it.
    return [*units, (layout.config, _stamped(config), 0o600 if layout.flavour == "user" else 0o644)]


def _unit_templates() -> Path:
    """Return the folder of the templates: in the package, or beside it where busd is developed."""
    packaged = Path(__file__).parent / "units"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "systemd"


def _stamped(text: str, command: str = "") -> str:
    text = text.replace("@BUSD@", command)
    return f"{text}\n# busd {__version__} wrote this, sha256 {_checksum(text)}\n"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def written_by(text: str) -> str | None:
    """Return the version of busd that wrote a file, or None if it was modified since."""
    found = _STAMP.search(text)
    if not found or found[2] != _checksum(text[: found.start()].removesuffix("\n")):
        return None
    return found[1]


def _install_file(
    path: Path, text: str, mode: int, *, is_forced: bool, is_dry: bool
) -> InstalledFile:
    found = read_text(path)
    if found == text:
        return InstalledFile(str(path), "unchanged")
    diff = differences(path, found, text) if found is not None else []
    if found is None:
        action: Action = "written"
    elif written_by(found) is not None:
        action = "updated"
    else:
        action = "replaced" if is_forced else "kept"
    if action != "kept" and not is_dry:
        if action == "replaced":
            shutil.copy2(path, path.with_name(f"{path.name}.old"))
        _write(path, text, mode)
    return InstalledFile(str(path), action, diff)


def read_text(path: Path) -> str | None:
    """Return the text of a file, None if there is no such file."""
    try:
        return path.read_text("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        raise BusdError(f"cannot read {path}: {problem.strerror}") from None


def differences(path: Path, found: str, wanted: str) -> list[str]:
    """Return how a file differs from what busd would write."""
    return list(
        difflib.unified_diff(
            found.splitlines(), wanted.splitlines(), str(path), "busd", n=0, lineterm=""
        )
    )


def _write(path: Path, text: str, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_plain_file(path, text.encode(), mode)
    except OSError as problem:
        raise BusdError(f"cannot write {path}: {problem.strerror}") from None


def find_program() -> list[str]:
    """Return the command line of the busd that runs now, as a unit must name it."""
    called = Path(sys.argv[0]).absolute()
    beside = Path(sys.executable).absolute().parent / "busd"
    for program in (called, beside):
        if program.name == "busd" and os.access(program, os.X_OK):
            return [str(program)]
    return [str(Path(sys.executable).absolute()), "-m", "busd"]


def _quoted(word: str) -> str:
    """Return a word as systemd reads it in ExecStart=."""
    word = word.replace("%", "%%").replace("$", "$$").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{word}"' if re.search(r"[\s\"'\\;]", word) else word


def hidden_program(layout: Layout, program: list[str]) -> str:
    """Return the folder that the sandbox of the service hides busd in, or ""."""
    if layout.flavour == "user":
        return ""
    places = [*program[:1], sys.prefix, sys.base_prefix]
    resolved = [Path(place).resolve() for place in places]
    found = [
        hidden
        for hidden in _HIDDEN_FROM_SERVICE
        if any(place.is_relative_to(hidden) for place in resolved)
    ]
    return found[0] if found else ""


def next_steps(layout: Layout, files: list[InstalledFile]) -> list[str]:
    """Return the commands that make the installed units run."""
    systemctl = layout.systemctl
    steps = [f"{systemctl} daemon-reload", f"{systemctl} enable --now busd.socket busd.service"]
    if any(file.action in ("updated", "replaced") for file in files):
        steps.append(f"{systemctl} restart busd.service")
    if layout.flavour == "user":
        steps.append("loginctl enable-linger    # the bus runs while you are not logged in, too")
    else:
        steps.append(f"export BUSD_ADDRESS=unix:{layout.socket}    # so that clients find it")
    return [*steps, "busd doctor"]
