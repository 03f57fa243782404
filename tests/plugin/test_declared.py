"""The tables that bundled plugins declare in the daemon's settings."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated

import msgspec
import pytest

from busd import ConfigError, DeclaredSettings
from busd.plugin.declared import Declared, bundled_settings, read_tables, with_tables
from busd.quantities import Count, about
from busd.settings.config import Settings, changes, default_settings
from busd.settings.description import describe
from busd.struct_faults import convert
from busd_plugins.bub.settings import AgentsSettings, BubSettings

_IMPORTED_ALONE = """
import sys

import anyio

from busd.plugin.declared import bundled_settings
from busd.plugin.loader import find_candidates, load
from busd.settings.config import load_settings

load_settings()
assert [name for name in sys.modules if name.startswith("busd_plugins")] == [
    "busd_plugins.bridges.settings",
    "busd_plugins.bub.settings",
    "busd_plugins.discord.settings",
    "busd_plugins.gateway.settings",
    "busd_plugins.hook.settings",
    "busd_plugins.telegram.settings",
]
[bub] = [each for each in find_candidates() if each.name == "bub"]
anyio.run(load, bub, 60.0)
from busd_plugins.bub.registry import BubSettings

assert BubSettings is bundled_settings()["bub"].kind
"""


class Lamp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    is_on: bool = False


class Lamps(msgspec.Struct, frozen=True):
    lamp: Lamp = Lamp()
    rooms: list[str] = msgspec.field(default_factory=lambda: ["hall"])


class Clash(msgspec.Struct, frozen=True):
    wire: Lamp = Lamp()


class Bulb(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    watts: Annotated[Count, about("Its power.")] = 5


class Bulbs(msgspec.Struct, frozen=True):
    bulb: Annotated[Bulb | None, about("A bulb of the lamp.")] = None


LAMPS: Declared = DeclaredSettings(Lamps)
BULBS: Declared = DeclaredSettings(Bulbs, within="lamp")
BOTH = {"bulbs": BULBS, "lamps": LAMPS}


def test_settings_have_the_tables_of_the_daemon_and_of_plugins() -> None:
    kind = with_tables(Settings, {"lamps": LAMPS})
    settings = msgspec.convert({"loop": "trio", "lamp": {"is_on": True}}, kind)
    assert isinstance(settings, Settings)
    assert settings.loop == "trio"
    assert read_tables(settings, Lamps) == Lamps(lamp=Lamp(is_on=True))


@pytest.mark.parametrize("said", [{"lamps": {}}, {"lamp": {"is_of": True}}])
def test_what_nobody_declares_is_unknown(said: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert(said, with_tables(Settings, {"lamps": LAMPS}))


@pytest.mark.parametrize(
    ("declared", "owners"),
    [
        ({"clash": DeclaredSettings(Clash)}, "the table wire .* busd and the plugin clash"),
        ({"a": LAMPS, "b": LAMPS}, "the table lamp .* the plugin a and the plugin b"),
    ],
)
def test_a_table_has_one_owner(declared: dict[str, Declared], owners: str) -> None:
    with pytest.raises(ConfigError, match=owners):
        with_tables(Settings, declared)


def test_a_table_may_be_within_that_of_another_plugin() -> None:
    kind = with_tables(Settings, BOTH)
    settings = msgspec.convert({"lamp": {"is_on": True, "bulb": {}}}, kind)
    assert BULBS.read(settings) == Bulbs(bulb=Bulb())
    assert LAMPS.read(settings) == Lamps(lamp=Lamp(is_on=True))
    assert BULBS.read(kind()) == Bulbs(bulb=None)
    with pytest.raises(ConfigError, match=r"unknown setting 'lamp.bulb.wats'; .*'lamp.bulb.watts'"):
        convert({"lamp": {"bulb": {"wats": 1}}}, kind)


def test_a_table_within_another_one_has_one_owner_too() -> None:
    owners = "the table lamp.bulb is declared by the plugin bulbs and the plugin more"
    with pytest.raises(ConfigError, match=owners):
        with_tables(Settings, BOTH | {"more": BULBS})


def test_a_table_that_may_be_missing_is_described_and_is_one_change() -> None:
    kind = with_tables(Settings, BOTH)
    [bulb, watts] = [each for each in describe(kind()) if each.name.startswith("lamp.bulb")]
    assert (bulb.head, bulb.about) == ("[lamp.bulb]", "A bulb of the lamp.")
    assert (watts.table, watts.default) == ("lamp.bulb", 5)
    settings = msgspec.convert({"lamp": {"bulb": {}}}, kind)
    assert changes(kind(), settings) == ["lamp.bulb"]
    assert changes(settings, kind()) == ["lamp.bulb"]


def test_bub_declares_agents_and_workers() -> None:
    assert bundled_settings()["bub"].kind.__struct_fields__ == ("agents", "workers")
    slow = msgspec.structs.replace(default_settings(), agents=AgentsSettings(stop_seconds=9.0))
    own = read_tables(slow, BubSettings)
    assert own == BubSettings(agents=AgentsSettings(stop_seconds=9.0))
    assert not {"agents", "workers"} & set(Settings.__struct_fields__)


def test_settings_are_read_without_the_plugin_which_uses_the_same_struct_later() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED_ALONE],
        env={name: v for name, v in os.environ.items() if not name.startswith("BUSD_")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
