"""The OpenAPI document of the webhook bridge, from its structs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from busd_plugins.hook.errors import FaultBody
from busd_plugins.hook.messages import CallbackBody, Outcome, Posted

if TYPE_CHECKING:
    from busd_plugins.hook.settings import HookTable

VERSION = "1.0"  # of these routes
Document = dict[str, Any]
_REFERENCE = "#/components/schemas/{name}"
_FAULTS = {
    "400": "The request cannot be understood, or the callback URL is refused.",
    "401": "The signature, its time or the token is wrong.",
    "404": "There is no such hook, or no such message.",
    "413": "The message is too large.",
    "422": "The key belongs to another message, or the message was refused.",
    "429": "Too many requests of this hook are under way.",
    "503": "The bus or the gateway cannot take it now: post it again with the same key.",
}
_OUTCOMES = {
    "200": "The agent has answered, or asks something.",
    "202": "The agent works on it.",
}


def describe(table: HookTable) -> Document:
    """Return an OpenAPI 3.1 document."""
    structs = [Posted, Outcome, CallbackBody, FaultBody]
    _, schemas = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "busd webhooks",
            "version": VERSION,
            "description": "Post messages to the agents of a bus, and get their answers.",
        },
        "paths": {
            f"{table.path}/{{name}}": {"post": _post(table)},
            f"{table.path}/{{name}}/{{id}}": {"get": _get(table)},
        },
        "components": {"schemas": schemas, "securitySchemes": _schemes()},
        "security": [{"token": []}, {"id": [], "timestamp": [], "signature": []}],
    }


def _post(table: HookTable) -> Document:
    key = _parameter(
        "Idempotency-Key",
        "header",
        "The same key means the same message; webhook-id is that of a signed request.",
    )
    chat = _parameter("chat_id", "query", "The chat, if the body is plain text.")
    return {
        "operationId": "postMessage",
        "summary": "Post a message to the agent of a chat.",
        "parameters": [_name(), _wait(table), key, chat],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _schema("Posted")},
                "text/plain": {"schema": {"type": "string"}},
            },
        },
        "responses": _responses(*_FAULTS),
        "callbacks": {"answer": {"{$request.body#/callback_url}": {"post": _callback()}}},
    }


def _get(table: HookTable) -> Document:
    wanted = _parameter("id", "path", "The id of the message.")
    return {
        "operationId": "getMessage",
        "summary": "Read what has become of a message.",
        "parameters": [_name(), wanted, _wait(table)],
        "responses": _responses("400", "401", "404", "422", "429", "503"),
    }


def _callback() -> Document:
    return {
        "operationId": "takeAnswer",
        "summary": "The answer, signed as requests are.",
        "security": [],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _schema("CallbackBody")}},
        },
        "responses": {
            "2XX": {"description": "It is delivered."},
            "4XX": {"description": "It is given up; 408, 425 and 429: it is posted again."},
            "5XX": {"description": "It is posted again."},
        },
    }


def _responses(*faults: str) -> Document:
    found: Document = {
        status: {
            "description": words,
            "content": {"application/json": {"schema": _schema("Outcome")}},
        }
        for status, words in _OUTCOMES.items()
    }
    for status in faults:
        found[status] = {
            "description": _FAULTS[status],
            "content": {"application/json": {"schema": _schema("FaultBody")}},
        }
    return found


def _schema(name: str) -> Document:
    return {"$ref": _REFERENCE.format(name=name)}


def _name() -> Document:
    return _parameter("name", "path", "The hook, as the settings name it.")


def _wait(table: HookTable) -> Document:
    words = "Seconds to wait for the answer."
    schema = {"type": "number", "minimum": 0, "maximum": table.wait_seconds, "default": 0}
    return _parameter("wait", "query", words) | {"schema": schema}


def _parameter(name: str, place: str, words: str) -> Document:
    about: Document = {"name": name, "in": place, "description": words}
    return about | {"required": place == "path", "schema": {"type": "string"}}


def _schemes() -> Document:
    def header(name: str, words: str) -> Document:
        return {"type": "apiKey", "in": "header", "name": name, "description": words}

    return {
        "token": {"type": "http", "scheme": "bearer"},
        "id": header("webhook-id", "The idempotency key, or the id of the message to read."),
        "timestamp": header("webhook-timestamp", "Seconds since 1970."),
        "signature": header(
            "webhook-signature",
            "`v1,` and the base64 of the HMAC-SHA256 of `webhook-id.webhook-timestamp.body`.",
        ),
    }
