"""File safety: files that other users could have written are neither run nor trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

_MAX_FILES = 10_000


def find_danger(place: Path, *, is_deep: bool) -> str:
    """Return why other users could change a file or folder; "" if they cannot.

    Everything must belong to us or root and be writable by its owner only. `is_deep` also checks
    the content of folders.
    """
    try:
        inside = _inside(place) if is_deep and place.is_dir() else iter(())
        for each in (place, *islice(inside, _MAX_FILES)):
            danger = _danger_of(each)
            if not danger and each.is_symlink():
                danger = find_danger_above(each)
            if danger:
                return danger
        return f"more than {_MAX_FILES} files in {place}" if next(inside, None) else ""
    except FileNotFoundError:
        return ""  # nothing exists there
    except OSError as problem:
        return f"cannot look at {place}: {problem.strerror}"


def find_danger_above(place: Path) -> str:
    """Return why other users could replace a folder; "" if they cannot.

    Each folder above it must belong to us or root and be writable by its owner only, unless its
    sticky bit prevents others from renaming our files.
    """
    try:
        above = dict.fromkeys([*place.absolute().parents, *place.resolve().parents])
        for folder in above:
            if danger := _danger_of(folder, may_be_sticky=True):
                return danger
    except FileNotFoundError:
        return ""
    except (OSError, RuntimeError) as problem:  # RuntimeError: a cycle of links
        return f"cannot look at {place}: {getattr(problem, 'strerror', None) or problem}"
    return ""


def _inside(folder: Path) -> Iterator[Path]:
    # Links are followed, as by the import; a cycle of links ends as too many files.
    for where, folders, files in os.walk(folder, followlinks=True):
        yield from (Path(where) / name for name in (*folders, *files))


def _danger_of(place: Path, *, may_be_sticky: bool = False) -> str:
    trusted = {0, os.geteuid()}
    if may_be_sticky:
        trusted |= _unmapped_root()
    for status in (place.lstat(), place.stat()):  # a link and its target
        mode = status.st_mode
        if status.st_uid not in trusted:
            return f"{place} belongs to uid {status.st_uid}; chown it, or remove it"
        if stat.S_ISLNK(mode) or (may_be_sticky and mode & stat.S_ISVTX):
            continue
        if mode & stat.S_IWOTH:
            return f"everybody may write {place}; run: chmod go-w {place}"
        if mode & stat.S_IWGRP:
            return f"group {status.st_gid} may write {place}; run: chmod g-w {place}"
    return ""


@cache
def _unmapped_root() -> set[int]:
    """Return the uid that owns root's files in a user namespace where root is not mapped.

    A sandboxed service of a user runs in one; there, `/` belongs to "nobody".
    """
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
        if any(line.split()[0] == "0" for line in lines):
            return set()
        return {int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except (OSError, ValueError, IndexError):
        return set()
