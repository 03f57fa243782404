"""`rpc.discover`: a valid OpenRPC document that names exactly the methods there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft7Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

from busd.ops.admin import admin_methods
from busd.ops.running import RunningBus
from busd_plugins.bridges import plugin as bridges
from busd_plugins.bub import plugin as bub
from busd_plugins.gateway import plugin as gateway
from tests.conftest import Join

DATA = Path(__file__).parent / "data"
Document = dict[str, Any]  # any JSON object


@pytest.fixture
def document(join: Join, suffix: str) -> Document:
    """What a running bus says of itself."""
    said: Document = join(f"agent:alice{suffix}").call("rpc.discover")
    return said


def openrpc_validator() -> Draft7Validator:
    """Check against the meta-schema of OpenRPC, with the one it refers to at hand."""
    ours = json.loads((DATA / "open-rpc-meta-schema.json").read_text())
    theirs = json.loads((DATA / "json-schema-tools-meta-schema.json").read_text())
    resource = DRAFT7.create_resource(theirs)
    registry: Registry[Any] = Registry().with_resources(
        [
            ("https://meta.json-schema.tools", resource),
            ("https://meta.json-schema.tools/", resource),
        ]
    )
    return Draft7Validator(ours, registry=registry)


def test_it_is_a_valid_openrpc_document(document: Document) -> None:
    problems = [f"{list(e.path)}: {e.message}" for e in openrpc_validator().iter_errors(document)]
    assert problems == []


def test_the_validator_finds_what_is_wrong(document: Document) -> None:
    del document["methods"][0]["name"]
    assert not openrpc_validator().is_valid(document)


def test_it_names_exactly_the_methods_that_are_registered(document: Document) -> None:
    names = [method["name"] for method in document["methods"]]
    of_plugins = [*bridges.methods, *bub.methods, *gateway.methods]
    assert names == [*admin_methods(cast(RunningBus, None)).table, *of_plugins]
    assert set(names) - set(of_plugins) == {
        "initialize",
        "subscribe",
        "unsubscribe",
        "sendMessage",
        "ping",
        "getStatus",
        "rpc.discover",
        "bus.explain",
        "bus.newToken",
        "bus.listTokens",
        "bus.revokeToken",
        "bus.listPlugins",
        "bus.about",
        "bus.reload",
        "bus.stop",
        "bus.trace",
        "bus.log",
        "bus.listMailboxes",
        "bus.showMailbox",
        "bus.purgeMailbox",
        "bus.listDead",
        "bus.showDead",
        "bus.retryDead",
        "bus.dropDead",
    }


def test_every_method_says_what_it_does_and_every_reference_leads_somewhere(
    document: Document,
) -> None:
    assert all(method["summary"] for method in document["methods"])
    schemas = document["components"]["schemas"]
    references = set(_references(document))
    assert references
    assert {name.rsplit("/", 1)[1] for name in references} <= set(schemas)


def test_the_results_of_the_bus_are_as_it_described_them(
    document: Document, join: Join, suffix: str
) -> None:
    alice = join(f"agent:alice2{suffix}")
    to_nobody = {"to": f"agent:nobody{suffix}", "payload": {}}
    calls: list[tuple[str, Document]] = [
        ("subscribe", {"address": f"tg:1{suffix}"}),
        ("unsubscribe", {"address": f"tg:1{suffix}"}),
        ("sendMessage", to_nobody),
        ("ping", {}),
        ("getStatus", {}),
        ("bus.explain", {"from": f"tg:1{suffix}", "to": f"tg:2{suffix}"}),
        ("bus.newToken", {"name": f"discovered{suffix}"}),
        ("bus.listTokens", {}),
        ("bus.revokeToken", {"name": f"discovered{suffix}"}),
        ("bus.trace", {"messageId": "unknown"}),
        ("bus.log", {"limit": 10}),
    ]
    results = {name: alice.call(name, params) for name, params in calls}
    described = {method["name"]: method for method in document["methods"]}
    for name, result in results.items():
        schema = described[name]["result"]["schema"] | {"components": document["components"]}
        Draft7Validator(schema).validate(result)
    for name, params in calls:
        required = {each["name"] for each in described[name]["params"] if each["required"]}
        assert required <= set(params)


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for inner in value.values() for each in _references(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in _references(inner)]
    return []
