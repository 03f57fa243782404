"""File safety: code that somebody else could have written is not run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

_MAX_FILES = 10_000


def find_danger(place: Path, *, is_deep: bool) -> str:
    """Say why what is in a file or folder must not be run; "" if it may.

    Everything must be ours or root's, and only they may write it. `is_deep` looks into folders.
    """
    if "\0" in str(place):
        return f"there is no {str(place)!r}: a path has no NUL character"
    try:
        inside = _inside(place) if is_deep and place.is_dir() else iter(())
        for each in (place, *islice(inside, _MAX_FILES)):
            if danger := _danger_of(each):
                return danger
        return f"more than {_MAX_FILES} files in {place}" if next(inside, None) else ""
    except FileNotFoundError:
        return ""  # nothing there, nothing to run
    except OSError as problem:
        return f"cannot look at {place}: {problem.strerror}"


def _inside(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        yield from (Path(where) / name for name in (*folders, *files))


def _danger_of(place: Path) -> str:
    for status in (place.lstat(), place.stat()):  # a link and what it leads to
        if status.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to uid {status.st_uid}; chown it, or remove it"
        if status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode):
            return f"everybody may write {place}; run: chmod o-w {place}"
    return ""
