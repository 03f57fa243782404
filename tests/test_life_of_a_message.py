"""Messages pass the functions that docs/life-of-a-message.md names, in that order."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from busd import SyncClient
from busd.testing import MemoryBus
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, serve_args
from tests.pages import ROOT, section, text_of

PAGE = "docs/life-of-a-message.md"
Step = tuple[str, str]  # a file and a function

IN_BUS = (
    "The bus finds the agent",
    "The bus starts the worker",
    "The bus hands the message over",
    "The sender gets its ack",
)
IN_KEEPER = ("The keeper starts the process",)
IN_WORKER = ("The worker joins the bus", "The worker answers")


def steps_of(*titles: str) -> list[Step]:
    text = "".join(section(PAGE, title) for title in titles)
    found = re.findall(r"^\d+\. `(\S+\.py)` `([\w.]+)`", text, re.M)
    assert len(found) == len(re.findall(r"^\d+\. ", text, re.M)), "a step names no function"
    return found


def missing_from(calls: list[Step], steps: list[Step]) -> list[Step]:
    """Return the steps that were not called after the one before them."""
    rest = iter(calls)
    return [step for step in steps if step not in rest]  # `in` consumes the iterator


# Every function that the page names


def functions_of(file: str) -> set[str]:
    """Return the qualified names of the functions that a file defines."""

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + node.name
            elif isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")

    return set(walk(ast.parse(text_of(file)).body, ""))


@pytest.mark.parametrize(
    "title", ["A message between two peers", *IN_BUS, *IN_KEEPER, *IN_WORKER], ids=str
)
def test_every_function_of_a_step_is_in_its_file(title: str) -> None:
    steps = steps_of(title)
    assert len(steps) >= 4
    assert [step for step in steps if step[1] not in functions_of(step[0])] == []


def test_a_newcomer_opens_at_most_thirty_files_for_the_longer_walk() -> None:
    assert len({file for file, _ in steps_of(*IN_BUS, *IN_KEEPER, *IN_WORKER)}) <= 30


def test_the_page_has_no_other_steps() -> None:
    told = re.findall(r"^\d+\. ", text_of(PAGE), re.M)
    titles = ["A message between two peers", *IN_BUS, *IN_KEEPER, *IN_WORKER]
    assert len(told) == len(steps_of(*titles))


def test_functions_named_in_passing_exist() -> None:
    names = set(re.findall(r"`([A-Z]\w+\.\w+)`", text_of(PAGE)))
    sources = [*(ROOT / "busd").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    defined = {name for file in sources for name in functions_of(str(file))}
    assert names - defined == set()


# A message between two peers


def test_a_message_between_two_peers_passes_them_in_order() -> None:
    steps = steps_of("A message between two peers")
    assert len(steps) == 11
    bus = MemoryBus()
    sender, worker = bus.join("tg:1"), bus.join("agent:w")
    seen: list[Step] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/busd/" in frame.f_code.co_filename:
            path = "busd/" + frame.f_code.co_filename.rsplit("/busd/", 1)[1]
            seen.append((path, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        answer = sender.send("agent:w", {"type": "hello"})
        worker.next_message().ack({"ok": True})
    finally:
        sys.setprofile(None)
    assert answer.result.acks[0].success
    assert missing_from(seen, steps) == []


# A message that starts a worker


@contextmanager
def open_traced_daemon(folder: Path, loop: Loop) -> Iterator[Daemon]:
    """Run a bus that records its steps in `folder/bus`, and its worker's in `folder/worker`."""
    (folder / "steps").write_text(json.dumps(steps_of(*IN_BUS, *IN_WORKER)))
    traced = [sys.executable, "-m", "tests.traced", str(folder / "steps")]
    settings = {
        "workers.default.agent": [*traced, str(folder / "worker"), "worker"],
        "workers.default.environment.PYTHONPATH": str(ROOT),
        "workers.default.spawner": "subprocess",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*traced, str(folder / "bus"), *serve_args(folder, loop, settings)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    daemon = Daemon(process, folder)
    try:
        yield daemon
    finally:
        daemon.stop()
        daemon.close()


@pytest.mark.parametrize("loop", ["uvloop", "trio"])
def test_a_message_that_starts_a_worker_passes_them_in_order(tmp_path: Path, loop: Loop) -> None:
    with (
        open_traced_daemon(tmp_path, loop) as daemon,
        SyncClient("tg:1", address=f"unix:{daemon.path}") as chat,
    ):
        [ack] = chat.send(
            "system:route",
            {"type": "tg_message", "content": {"text": "hello"}},
            timeout_seconds=PATIENCE_SECONDS,
        ).acks
        assert ack.success, ack
        reply = next(iter(chat.messages()))
        assert reply.payload["content"]["text"] == "hello"
        reply.reply()
    for process, titles in (("bus", IN_BUS), ("worker", IN_WORKER)):
        lines = (tmp_path / process).read_text().splitlines()
        calls = [(file, name) for file, name in (line.split() for line in lines)]
        assert missing_from(calls, steps_of(*titles)) == []
