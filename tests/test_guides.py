"""The guides say what is: their plugins run, their commands answer so, their settings are valid."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from busd.errors import ConfigError
from busd.plugin.declared import Declared, read_tables, with_tables
from busd.settings.config import Settings
from busd.settings.description import describe
from busd.struct_faults import convert
from tests.daemons import PATIENCE_SECONDS, open_daemon
from tests.pages import ROOT, samples_of, text_of
from tests.test_tour import as_pattern, run


def blocks_of(guide: str, *languages: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block, in order."""
    return samples_of(text_of(f"docs/{guide}"), *languages)


def environment(folder: Path, address: str) -> dict[str, str]:
    """Return that of a reader who has busd, and `llm`, which the guides speak of."""
    busd, llm = folder / "bin/busd", folder / "bin/llm"
    busd.parent.mkdir(exist_ok=True)
    busd.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m busd "$@"\n')
    llm.write_text("#!/bin/sh\ncat\n")
    for program in (busd, llm):
        program.chmod(0o755)
    return os.environ | {
        "BUSD_ADDRESS": address,
        "HOME": str(folder),
        "NO_COLOR": "1",
        "PATH": f"{busd.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_STATE_HOME": str(folder / "home-state"),
    }


@contextmanager
def open_plugins(folder: Path, *plugins: str) -> Iterator[dict[str, str]]:
    """Run a bus with these plugins; gives the environment of somebody who talks to it."""
    place = folder / "plugins"
    place.mkdir()
    for text in plugins:
        name = re.search(r'Plugin\("(\w+)"', text)
        assert name
        (place / f"{name[1]}.py").write_text(text)
    with open_daemon("uvloop", {"plugins.folders": [str(place)]}) as daemon:
        yield environment(folder, f"unix:{daemon.path}")


def test_the_plugins_of_the_guide_run_and_answer_as_it_says(tmp_path: Path) -> None:
    blocks = blocks_of("plugins.md", "python", "sh", "text")
    greet, guests, _ = (text for language, text in blocks if language == "python")
    with open_plugins(tmp_path, greet) as env:
        assert compare(blocks[: blocks.index(("python", guests))], env, tmp_path) == 3


def test_its_hooks_and_methods_answer_as_it_says(tmp_path: Path) -> None:
    blocks = blocks_of("plugins.md", "python", "sh", "text")
    _, guests, _ = (text for language, text in blocks if language == "python")
    with open_plugins(tmp_path, guests) as env:
        assert compare(blocks[blocks.index(("python", guests)) :], env, tmp_path) == 1


def test_the_settings_that_its_plugin_declares_are_checked_and_described() -> None:
    _, _, (_, text) = blocks_of("plugins.md", "python")
    names: dict[str, Any] = {}
    exec(compile(text, "settings.py", "exec", dont_inherit=True), names)
    declared: Declared = names["settings"]
    kind = with_tables(Settings, {"night": declared})
    [nap, _] = [each for each in describe(kind()) if each.name.startswith("night.")]
    assert (nap.name, nap.default, nap.about) == ("night.nap_seconds", 60.0, "Length of a nap.")
    wrong = convert({"night": {"nap_seconds": 4000.0}}, kind)
    with pytest.raises(ConfigError, match="nap_seconds must not be more than"):
        declared.check(read_tables(wrong, declared.kind))


def compare(blocks: list[tuple[str, str]], env: dict[str, str], cwd: Path) -> int:
    """Run each command whose answer is told, and compare the two."""
    compared = 0
    said = ""
    for language, text in blocks:
        if language == "sh":
            said = run(text, env, cwd)
        elif language == "text":
            assert re.fullmatch(as_pattern(text), "\n".join(map(str.rstrip, said.splitlines())))
            compared += 1
    return compared


def test_the_first_chat_of_the_guide_needs_no_settings(tmp_path: Path) -> None:
    command, answer = blocks_of("agents.md", "sh", "text")[:2]
    with open_daemon("uvloop") as daemon:
        env = environment(tmp_path, f"unix:{daemon.path}")
        assert compare([command, answer], env, tmp_path) == 1


@pytest.mark.parametrize("number", range(len(blocks_of("agents.md", "toml"))))
def test_the_settings_of_the_guide_are_valid(tmp_path: Path, number: int) -> None:
    config = tmp_path / "busd.toml"
    config.write_text(blocks_of("agents.md", "toml")[number][1])
    checked = subprocess.run(
        [sys.executable, "-m", "busd", "config", "check", "--config", str(config)],
        env=environment(tmp_path, ""),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_shell_script_of_the_guide_answers(tmp_path: Path) -> None:
    [script] = [text for _, text in blocks_of("agents.md", "toml") if "pass_text" in text]
    assert chat_with(tmp_path, script, "hello\n") == "hello has 5 characters\n"


def test_the_python_agent_of_the_guide_answers(tmp_path: Path) -> None:
    [(_, agent)] = blocks_of("agents.md", "python")
    program = tmp_path / "answer.py"
    program.write_text(agent)
    settings = f"[workers.default]\nagent = [{str(sys.executable)!r}, {str(program)!r}]\n"
    shown = chat_with(tmp_path, settings, "hello\ndelete it\nno\n")
    assert shown == "You said hello\n? Really?\n  1. yes\n  2. no\nnothing was deleted\n"


def chat_with(folder: Path, settings: str, lines: str) -> str:
    """Run a bus with these settings and give what a chat on it shows."""
    conf = folder / "bus/conf.d"
    conf.mkdir(parents=True)
    (conf / "workers.toml").write_text(settings)
    with open_daemon("uvloop", folder=folder / "bus") as daemon:
        done = subprocess.run(
            [sys.executable, "-m", "busd", "chat", "--as", "ann"],
            input=lines,
            env=environment(folder, f"unix:{daemon.path}"),
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
    return done.stdout
