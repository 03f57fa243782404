"""The OpenAPI document: it is valid, and what the gateway answers is as it says."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import jsonschema
import pytest

from tests.daemons import PATIENCE_SECONDS
from tests.plugins.hook.place import TOKEN, Hooks, bearer


@pytest.fixture
def document(hooks: Hooks) -> Any:
    response = httpx.get(hooks.url("openapi.json"), timeout=PATIENCE_SECONDS)
    assert response.headers["content-type"] == "application/json"
    return response.json()


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def check(document: Any, schema: Any, value: Any) -> None:
    """Check a value against a schema of the document."""
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(
        value
    )


def check_response(document: Any, operation: Any, response: httpx.Response) -> None:
    said = operation["responses"][str(response.status_code)]["content"]["application/json"]
    check(document, said["schema"], response.json())


def test_its_schemas_are_valid_and_its_references_lead_somewhere(document: Any) -> None:
    assert document["openapi"] == "3.1.0"
    assert tuple(document) == ("openapi", "info", "paths", "components", "security")
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in references(document):
        place: Any = document
        for name in reference.removeprefix("#/").split("/"):
            place = place[name]
    names = set(document["components"]["securitySchemes"])
    assert {name for each in document["security"] for name in each} == names


def test_each_place_of_a_path_is_a_parameter(document: Any) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            said = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert said == {part[1:-1] for part in path.split("/") if part.startswith("{")}


@pytest.mark.anyio
async def test_the_gateway_answers_as_it_says(hooks: Hooks, document: Any) -> None:
    posting = document["paths"]["/hook/{name}"]["post"]
    getting = document["paths"]["/hook/{name}/{id}"]["get"]
    body = {"chat_id": "described", "text": "hi", "metadata": {"a": 1}}
    content = posting["requestBody"]["content"]["application/json"]["schema"]
    check(document, content, body)
    with pytest.raises(jsonschema.ValidationError):
        check(document, content, {"text": 5})
    waited = await hooks.post(body, wait=20, key=uuid4().hex)
    accepted = await hooks.post(body)
    responses = [
        waited,
        accepted,
        await hooks.post(b"{", headers=bearer(TOKEN) | {"Content-Type": "application/json"}),
        await hooks.post(body, token="wrong"),
        await hooks.post(body, hook="nobody"),
        await hooks.post(b"x" * 70_000),
    ]
    assert [each.status_code for each in responses] == [200, 202, 400, 401, 404, 413]
    for response in responses:
        check_response(document, posting, response)
    check_response(document, getting, await hooks.get(accepted.json()["id"], wait=20))
    check_response(document, getting, await hooks.get("nothing"))
