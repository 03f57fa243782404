"""What workers print: the last lines, and those after one already seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from busd.supervise.logs import LogLine, read_log

pytestmark = pytest.mark.anyio


def write(folder: Path, name: str, text: str) -> None:
    (folder / "logs").mkdir(exist_ok=True)
    with (folder / "logs" / name).open("a") as file:
        file.write(text)


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


async def test_the_last_lines_are_given(tmp_path: Path) -> None:
    write(tmp_path, "worker.log", "".join(f"{number}\n" for number in range(10)))
    assert texts(await read_log(tmp_path, 3, None)) == ["7", "8", "9"]


async def test_reading_goes_on_after_a_line_that_was_seen(tmp_path: Path) -> None:
    write(tmp_path, "worker.log", "a\nb\n")
    seen = (await read_log(tmp_path, 10, None))[-1].id
    assert await read_log(tmp_path, 10, seen) == []
    write(tmp_path, "worker.log", "c\nd\n")
    assert texts(await read_log(tmp_path, 1, seen)) == ["c"]


async def test_reading_goes_on_in_the_next_file(tmp_path: Path) -> None:
    write(tmp_path, "worker.log", "a\nb\n")
    seen = (await read_log(tmp_path, 10, None))[0].id
    (tmp_path / "logs/worker.log").rename(tmp_path / "logs/worker.log.1")
    write(tmp_path, "worker.log", "c\n")
    assert texts(await read_log(tmp_path, 10, seen)) == ["b", "c"]


async def test_a_line_that_is_not_finished_waits(tmp_path: Path) -> None:
    write(tmp_path, "worker.log", "a\nhal")
    assert texts(await read_log(tmp_path, 10, None)) == ["a"]
    write(tmp_path, "worker.log", "f\n")
    assert texts(await read_log(tmp_path, 10, None)) == ["a", "half"]


async def test_a_link_a_pipe_or_nothing_at_all_is_no_log(tmp_path: Path) -> None:
    assert await read_log(tmp_path, 10, None) == []
    write(tmp_path, "secret", "secret\n")
    (tmp_path / "logs/worker.log").symlink_to("secret")
    os.mkfifo(tmp_path / "logs/worker.log.1")
    assert await read_log(tmp_path, 10, None) == []
