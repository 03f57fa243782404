"""The busd.toml that is installed: complete, commented, and harmless."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from busd.bus.access import Grant
from busd.settings.config import default_settings, load_settings, setting_names
from busd.settings.defaults import encode_default_config
from busd.settings.description import describe
from busd_plugins.bub.settings import WorkerSettings
from tests.pages import rows_of

BRIDGES = ("programs", "telegram", "discord", "hook")  # the tables within [bridges]
TEXT = encode_default_config({}, "systemctl reload busd")
LINES = TEXT.splitlines()


def test_every_line_is_commented_out() -> None:
    assert [line for line in LINES if line and not line.startswith("#")] == []
    assert tomllib.loads(TEXT) == {}


def test_every_setting_is_there_with_a_line_about_it() -> None:
    shown = {line[1:].split(" = ")[0]: LINES[number - 1] for number, line in enumerate(LINES)}
    for name in setting_names():
        if any(other.startswith(f"{name}.") for other in setting_names()):
            continue  # a group
        table, _, key = name.partition(".")
        if key and (table in ("grant", "workers") or key.partition(".")[0] in BRIDGES):
            assert shown[key.rpartition(".")[2]].startswith("# ")
            continue  # a member of a table
        assert shown.get(name, "").startswith("# "), name


def test_without_the_marks_it_says_what_is_the_default(tmp_path: Path) -> None:
    keys = [line[1:] for line in LINES if line.startswith("#") and not line.startswith("# ")]
    values = [line for line in keys if not line.endswith("# not set")]
    config = tmp_path / "busd.toml"
    # A grant is for somebody: that much the operator must add.
    values.insert(values.index("[[grant]]") + 1, "uid = 1000")
    values.insert(values.index("[bridges.programs.default]") + 1, 'command = ["true"]')
    config.write_text("\n".join(values))
    default: Any = default_settings()  # some tables are declared by plugins
    tables = {
        "programs": {"default": {"command": ["true"]}},
        "telegram": {},
        "discord": {},
        "hook": {},
    }
    assert load_settings(str(config), {}) == msgspec.structs.replace(
        default,
        grant=[Grant(name="1", uid=1000)],
        workers={"default": WorkerSettings()},
        bridges=msgspec.convert(tables, type(default.bridges)),
    )


def test_every_setting_is_described_in_the_words_of_the_documentation() -> None:
    rows = rows_of("docs/settings.md", "All settings")
    told = {name.strip("`"): words for name, _, words in rows}
    for setting in describe(default_settings()):
        assert setting.about.endswith("."), setting.name
        assert f"# {setting.about}" in LINES
        assert told[setting.name] == setting.about
