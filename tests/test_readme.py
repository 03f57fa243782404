"""The README says what is: its tables are the code's, its tour works, its path is the real one."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any, cast

import click
import msgspec

import busd.errors
from busd.agent.settings import WorkerSettings
from busd.bus.access import Grant
from busd.cli.main import cli
from busd.errors import NotInitialized, RequestError
from busd.ops.admin import admin_methods
from busd.ops.running import RunningBus
from busd.plugin.plugin import HOOKS, Plugin
from busd.settings.config import Settings
from busd.settings.defaults import ABOUT, default_of, encode_value
from busd.testing import MemoryBus
from busd_plugins.bub import plugin as bub
from tests.plugin.sources import GREET

TABLES: dict[str, type[msgspec.Struct]] = {"workers": WorkerSettings, "grant": Grant}
README = (Path(__file__).parent.parent / "README.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##+ |\Z)", README, re.M | re.S)
    assert found, f"README has no section {title!r}"
    return found[1]


def rows_of(title: str) -> list[list[str]]:
    """Return the cells of the first table in a section, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_of_methods_is_the_method_table() -> None:
    methods = admin_methods(cast(RunningBus, None))  # describing them needs no bus
    assert rows_of("Methods") == [
        [f"`{method.name}`", _params(method.params), method.summary, _codes(method.errors)]
        for method in methods.described.values()
    ]


def test_the_table_of_the_plugins_methods_is_what_the_bundled_one_registers() -> None:
    assert rows_of("Methods of plugins") == [
        [f"`{method.name}`", _params(method.params), inspect.getdoc(method.function)]
        for method in bub.methods.values()
    ]
    assert all(method.admin for method in bub.methods.values())


def _params(kind: type) -> str:
    fields = msgspec.structs.fields(kind)
    return " ".join(
        f"`{field.encode_name}`" if field.required else f"`[{field.encode_name}]`"
        for field in fields
    )


def _codes(errors: tuple[type[RequestError], ...]) -> str:
    kinds: tuple[type[RequestError], ...] = (NotInitialized, *errors)
    codes = {kind.code for kind in kinds}
    return " ".join(str(code).replace("-", "−") for code in sorted(codes, reverse=True))


def test_the_table_of_errors_names_every_rule() -> None:
    kinds = [
        kind
        for kind in vars(busd.errors).values()
        if isinstance(kind, type) and issubclass(kind, RequestError) and kind is not RequestError
    ]
    expected = {(str(kind.code).replace("-", "−"), f"`{kind.rule}`") for kind in kinds}
    assert {(code, rule) for code, rule, _ in rows_of("Errors")} == expected


def test_the_table_of_verbs_is_the_command_line() -> None:
    context = click.Context(cli)
    expected = {
        (f"`busd {name}`", (command.help or "").split("\n")[0])
        for name, command in cli.commands.items()
    }
    assert {(verb, words) for verb, words in rows_of("The command line")} == expected
    assert set(cli.list_commands(context)) == set(cli.commands)


def test_the_table_of_settings_has_every_setting_with_its_default() -> None:
    told = {name.strip("`"): default for name, default, _ in rows_of("Settings")}
    expected = _defaults(Settings(), "")
    assert list(told) == list(expected)
    for name in told.keys() - {"listen", "state"}:  # those two depend on who asks
        assert told[name] == expected[name], name
    assert {name: words for name, _, words in rows_of("Settings")} == {
        f"`{name}`": ABOUT[name] for name in expected
    }


def _defaults(settings: msgspec.Struct, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, msgspec.Struct):
            found |= _defaults(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = _shown(value)
        for member in msgspec.structs.fields(TABLES[field.name]) if field.name in TABLES else ():
            found[f"{field.name}.{member.name}"] = _shown(default_of(member))
    return found


def _shown(default: object) -> str:
    return "–" if default is None else f"`{encode_value(default)}`"


def test_the_table_of_hooks_is_what_a_plugin_can_hook_into() -> None:
    assert rows_of("Hooks") == [
        [f"`{name}`", inspect.getdoc(getattr(Plugin, name))] for name in HOOKS
    ]


def test_the_plugin_of_the_readme_is_the_one_that_is_tested() -> None:
    assert GREET in section("Write a plugin")


def test_a_message_really_passes_the_functions_of_its_life_in_order() -> None:
    told = re.findall(r"^\d+\. `(busd/\S+)` `(\w+\.\w+)`", section("Life of a message"), re.M)
    assert len(told) == 11
    bus = MemoryBus()
    sender, worker = bus.join("tg:1"), bus.join("agent:w")
    seen: list[tuple[str, str]] = []

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
    rest = iter(seen)
    missing = [step for step in told if step not in rest]  # `in` eats the iterator: order counts
    assert missing == []


def test_the_examples_of_the_test_kit_are_true() -> None:
    text = (Path(__file__).parent.parent / "docs/testing.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(examples) == 2
    exec(compile("".join(examples), "docs/testing.md", "exec"), {})
