"""The tables of the documentation that follow from the code.

`python -m tests.doc_tables` writes them anew; the tests compare them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import cast

import click
import msgspec

import tests.conftest  # noqa: F401 - makes the bundled plugins importable
from busd.cli.main import cli
from busd.errors import NotInitialized, RequestError
from busd.ops.admin import admin_methods
from busd.ops.running import RunningBus
from busd.plugin.plugin import HOOKS, Plugin
from busd.settings.config import default_settings
from busd.settings.defaults import encode_value
from busd.settings.description import describe
from busd_plugins.bridges import plugin as bridges
from busd_plugins.bub import plugin as bub
from busd_plugins.gateway import plugin as gateway
from tests.daemons import open_daemon
from tests.http_pages import fetch
from tests.pages import ROOT, span_of, text_of

Rows = list[list[str]]

# Their defaults depend on the user.
USER_DEFAULTS = {
    "listen": "the user's Unix socket, `tcp://127.0.0.1:7892`",
    "state": "`~/.local/state/busd`",
}
COMMON_OPTIONS = ("--address", "--json")


# The protocol


def methods() -> Rows:
    described = admin_methods(cast(RunningBus, None)).described  # describing them needs no bus
    return [
        [f"`{method.name}`", _params(method.params), method.summary, _codes(method.errors)]
        for method in described.values()
    ]


def methods_of_plugins() -> Rows:
    return [
        [f"`{method.name}`", _params(method.params), inspect.getdoc(method.function) or ""]
        for method in (bridges.methods | bub.methods | gateway.methods).values()
    ]


def _params(kind: type) -> str:
    fields = msgspec.structs.fields(kind)
    return " ".join(
        f"`{field.encode_name}`" if field.required else f"`[{field.encode_name}]`"
        for field in fields
    )


def _codes(errors: tuple[type[RequestError], ...]) -> str:
    kinds: tuple[type[RequestError], ...] = (NotInitialized, *errors)
    return " ".join(minus(code) for code in sorted({kind.code for kind in kinds}, reverse=True))


def minus(code: int) -> str:
    """Return a code as the tables write it."""
    return str(code).replace("-", "−")


# Settings


def settings() -> Rows:
    return [
        [f"`{each.name}`", USER_DEFAULTS.get(each.name, _shown(each.default)), each.about]
        for each in describe(default_settings())
    ]


def _shown(default: object) -> str:
    return "–" if default is None else f"`{encode_value(default)}`"


# Plugins


def hooks() -> Rows:
    return [[f"`{name}`", inspect.getdoc(getattr(Plugin, name)) or ""] for name in HOOKS]


# The command line


def commands() -> Rows:
    return [[f"`{name}`", summary_of(command)] for name, command in _walk(cli, "busd")]


def options() -> Rows:
    return [
        [f"`{name}`", _names(option), _about(option)]
        for name, command in _walk(cli, "busd")
        for option in options_of(command)
        if option.opts[0] not in COMMON_OPTIONS
    ]


def common_options() -> Rows:
    """Return each common option with the commands that do not have it."""
    ends = [(name, each) for name, each in _walk(cli, "busd") if not isinstance(each, click.Group)]
    rows = []
    for wanted in COMMON_OPTIONS:
        having = {
            name: option
            for name, command in ends
            for option in options_of(command)
            if option.opts[0] == wanted
        }
        first = next(iter(having.values()))
        without = ", ".join(f"`{name}`" for name, _ in ends if name not in having)
        rows.append([_names(first), without])
    return rows


def _walk(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _walk(command, f"{path} {name}")


def options_of(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def summary_of(command: click.Command) -> str:
    return (command.help or "").split("\n")[0]


def _names(option: click.Option) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _about(option: click.Option) -> str:
    words = [option.help or ""]
    if isinstance(option.type, click.Choice):
        words.append(f"({', '.join(map(str, option.type.choices))})")
    if option.show_default:
        words.append(f"[default: {option.default}]")
    return " ".join(filter(None, words))


# Metrics


def metrics() -> Rows:
    """Return what a running bus exports."""
    with open_daemon("uvloop") as daemon:
        page = fetch(daemon, "/metrics").text
    about = dict(re.findall(r"^# HELP (\S+) (.*)$", page, re.M))
    kinds = dict(re.findall(r"^# TYPE (\S+) (.*)$", page, re.M))
    return [[f"`{name}`", kinds[name], words] for name, words in about.items()]


# All of them, with their heads

TABLES: dict[tuple[str, str], tuple[tuple[str, ...], Callable[[], Rows]]] = {
    ("docs/protocol.md", "Methods"): (("method", "params", "what it does", "errors"), methods),
    ("docs/protocol.md", "Methods of plugins"): (
        ("method", "params", "what it does"),
        methods_of_plugins,
    ),
    ("docs/settings.md", "All settings"): (("setting", "default", "what it is"), settings),
    ("docs/operating.md", "Metrics and health"): (("metric", "type", "meaning"), metrics),
    ("docs/plugins.md", "Hooks"): (("hook", "what it does"), hooks),
    ("docs/cli.md", "Commands"): (("command", "what it does"), commands),
    ("docs/cli.md", "Common options"): (("option", "commands without it"), common_options),
    ("docs/cli.md", "Options"): (("command", "option", "what it does"), options),
}


def encode_table(head: tuple[str, ...], rows: Rows) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_escape, line))} |\n" for line in lines)


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def main() -> None:
    """Write the tables of all pages anew."""
    for (page, title), (head, rows) in TABLES.items():
        text = text_of(page)
        start, end = span_of(text, title)
        lines = text[start:end].splitlines(keepends=True)
        numbers = [number for number, line in enumerate(lines) if line.startswith("|")]
        after = next(
            (number for number in range(numbers[0], len(lines)) if number not in numbers),
            len(lines),
        )
        lines[numbers[0] : after] = [encode_table(head, rows())]
        (ROOT / page).write_text(text[:start] + "".join(lines) + text[end:])


if __name__ == "__main__":
    main()
