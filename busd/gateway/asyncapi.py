"""The AsyncAPI document of the gateway: all channels and messages, from the dialects' structs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec

from busd import __version__
from busd.gateway.dialect import MessageKind
from busd.gateway.loading import Route

Document = dict[str, Any]
_REFERENCE = "#/components/schemas/{name}"


def describe(routes: list[Route], listen: str) -> Document:
    """Return an AsyncAPI 3.0 document."""
    channels: Document = {}
    operations: Document = {}
    messages: Document = {}
    schemas: Document = {}
    for route in routes:
        for kind in route.dialect.messages:
            messages[f"{route.plugin}.{_key(kind)}"] = _message(route, kind, schemas)
        for first, channel, kinds in _channels(route):
            name = _free_name(first, channels)
            channels[name] = channel | {
                "messages": {
                    _key(kind): {"$ref": f"#/components/messages/{route.plugin}.{_key(kind)}"}
                    for kind in kinds
                }
            }
            operations |= _operations(name, kinds)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "busd gateway",
            "version": __version__,
            "description": "The chat formats by which clients talk to the agents of a bus.",
        },
        "defaultContentType": "application/json",
        "servers": {"gateway": {"host": listen, "protocol": "ws"}},
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def _channels(route: Route) -> Iterator[tuple[str, Document, list[MessageKind]]]:
    """Return the name, the object and the messages of each channel: a path, or a namespace."""
    about: Document = {"address": route.path, "description": route.about}
    kinds = list(route.dialect.messages)
    if "{room}" in route.path:
        about["parameters"] = {"room": {"description": "The room or group."}}
    if not route.dialect.namespaces:
        yield route.plugin, about, kinds
    for namespace in route.dialect.namespaces:
        name = f"{route.plugin}{namespace.replace('/', '.').rstrip('.')}"
        words = f"{route.about} Namespace {namespace} of Socket.IO."
        of_it = [each for each in kinds if not each.namespaces or namespace in each.namespaces]
        yield name, about | {"description": words}, of_it


def _free_name(name: str, channels: Document) -> str:
    """Return a name for a channel; a dialect may have several paths."""
    names = (f"{name}.{number}" if number > 1 else name for number in count(1))
    return next(each for each in names if each not in channels)


def _operations(channel: str, kinds: list[MessageKind]) -> Document:
    found: Document = {}
    for direction in ("receive", "send"):
        references = [
            {"$ref": f"#/channels/{channel}/messages/{_key(kind)}"}
            for kind in kinds
            if kind.direction == direction
        ]
        if references:
            found[f"{channel}.{direction}"] = {
                "action": direction,
                "channel": {"$ref": f"#/channels/{channel}"},
                "messages": references,
            }
    return found


def _key(kind: MessageKind) -> str:
    """Return a key for a kind: clients may send another form of a message than they get."""
    return f"{kind.direction}.{kind.name}"


def _message(route: Route, kind: MessageKind, schemas: Document) -> Document:
    """Return the object of a message; add the schemas that it refers to."""
    (schema,), parts = msgspec.json.schema_components([kind.struct], ref_template=_REFERENCE)
    for name, part in parts.items():
        schemas[f"{route.plugin}.{name}"] = _renamed(part, route.plugin)
    doc = kind.summary or (getattr(kind.struct, "__doc__", "") or "").strip().split("\n")[0]
    message: Document = {
        "name": kind.event or kind.name,
        "summary": doc if kind.struct is not str else kind.summary,
        "payload": _renamed(schema, route.plugin),
    }
    if kind.struct is str:
        message["contentType"] = "text/plain"
    return message


def _renamed(schema: Any, plugin: str) -> Any:
    """Return a schema whose references name the schemas of one plugin."""
    if isinstance(schema, dict):
        return {
            name: value.replace("/schemas/", f"/schemas/{plugin}.")
            if name == "$ref"
            else _renamed(value, plugin)
            for name, value in schema.items()
        }
    if isinstance(schema, list):
        return [_renamed(each, plugin) for each in schema]
    return schema
