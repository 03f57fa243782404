"""Describe a method table as an OpenRPC document, from the types it was registered with."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from busd.errors import RequestError
from busd.rpc.envelope import encode
from busd.rpc.methods import Method, Methods

_OPENRPC_VERSION = "1.3.2"
_REFERENCE = "#/components/schemas/{name}"


def describe_table(
    title: str, version: str, methods: Methods[Any], always: tuple[type[RequestError], ...] = ()
) -> Raw:
    """Return the OpenRPC document of a table, encoded; it is made once per change of the table."""
    if methods.document is None:
        described = list(methods.described.values())
        methods.document = Raw(encode(describe_methods(title, version, described, always)))
    return methods.document


def describe_methods(
    title: str, version: str, methods: list[Method], always: tuple[type[RequestError], ...] = ()
) -> dict[str, Any]:
    """Return the OpenRPC document; `always` are the errors that every method may answer with."""
    types = {shape for method in methods for shape in (method.params, method.result)}
    ordered = sorted(types, key=lambda shape: shape.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    by_type = dict(zip(ordered, schemas, strict=True))
    return {
        "openrpc": _OPENRPC_VERSION,
        "info": {"title": title, "version": version},
        "methods": [_describe(method, by_type, components, always) for method in methods],
        "components": {"schemas": components},
    }


def _describe(
    method: Method,
    by_type: dict[type, dict[str, Any]],
    components: dict[str, Any],
    always: tuple[type[RequestError], ...],
) -> dict[str, Any]:
    params = _resolve(by_type[method.params], components)
    required = params.get("required", [])
    return {
        "name": method.name,
        "summary": method.summary,
        "paramStructure": "by-name",
        "params": [
            {"name": name, "required": name in required, "schema": schema}
            for name, schema in params.get("properties", {}).items()
        ],
        "result": {"name": "result", "schema": by_type[method.result]},
        "errors": _describe_errors(always + method.errors),
    }


def _resolve(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference to the component it names."""
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = components[schema["$ref"].rsplit("/", 1)[1]]
    return found


def _describe_errors(kinds: tuple[type[RequestError], ...]) -> list[dict[str, Any]]:
    """One entry a code: OpenRPC wants them unique."""
    by_code: dict[int, dict[str, Any]] = {}
    for kind in kinds:
        entry = by_code.setdefault(kind.code, {"code": kind.code, "message": "", "data": []})
        entry["data"].append({"rule": kind.rule})
    for entry in by_code.values():
        entry["message"] = " or ".join(item["rule"] for item in entry["data"])
    return list(by_code.values())
