"""The AsyncAPI document of the gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from msgspec.structs import fields

from busd.gateway.asyncapi import describe
from busd.gateway.loading import Route, find_dialects
from busd.plugin.host import PluginSettings

SCHEMA = Path(__file__).parent.parent / "data/asyncapi-3.0.0-schema.json"
BUNDLED = ["tkr", "group", "stage", "agentiq"]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def routes() -> Iterator[list[Route]]:
    # Plugins are imported anew; other tests in this process go on with the modules that they have.
    modules = {name: each for name, each in sys.modules.items() if name.startswith("busd_plugins")}
    yield find_dialects(BUNDLED, PluginSettings())
    sys.modules.update(modules)


@pytest.fixture(scope="module")
def document(routes: list[Route]) -> Document:
    return describe(routes, "127.0.0.1:7893")


def problems_of(document: Document) -> list[str]:
    validator = Draft7Validator(json.loads(SCHEMA.read_text()))
    return [f"{list(each.path)}: {each.message[:200]}" for each in validator.iter_errors(document)]


def test_it_is_valid(document: Document) -> None:
    assert problems_of(document) == []


def test_the_validator_finds_what_is_wrong(document: Document) -> None:
    assert problems_of(document | {"asyncapi": "2.0.0"})
    assert problems_of(document | {"channels": {"x": {"adress": "/"}}})


def test_every_dialect_has_channels_and_messages_both_ways(document: Document) -> None:
    assert set(document["channels"]) == {
        *("tkr", "tkr.agents", "tkr.tasks"),
        *("group", "group.2", "stage", "agentiq"),
    }
    assert [document["channels"][name]["address"] for name in ("group", "group.2")] == [
        "/ws/messaging/{room}/",
        "/ws/messaging/groups/{room}/",
    ]
    for name in document["channels"]:
        for direction in ("receive", "send"):
            assert document["operations"][f"{name}.{direction}"]["messages"]


def test_every_kind_of_message_is_in_it(routes: list[Route], document: Document) -> None:
    for route in routes:
        for kind in route.dialect.messages:
            message = document["components"]["messages"][
                f"{route.plugin}.{kind.direction}.{kind.name}"
            ]
            if kind.struct is not str:
                name = message["payload"]["$ref"].rpartition("/")[2]
                schema = document["components"]["schemas"][name]
                members = {field.encode_name for field in fields(kind.struct)}
                assert members <= set(schema["properties"])
                assert schema["title"] == kind.struct.__name__


def test_every_reference_leads_somewhere(document: Document) -> None:
    for reference in references_in(document):
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            assert part in place, reference
            place = place[part]


def references_in(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for inner in value.values() for each in references_in(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in references_in(inner)]
    return []


def test_every_message_has_a_summary(document: Document) -> None:
    messages = document["components"]["messages"]
    assert [name for name, message in messages.items() if not message["summary"]] == []
