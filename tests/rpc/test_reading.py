"""One rule for all methods and message types: null in an optional member means it is absent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw, UnsetType

from busd.rpc.reading import Id, reader_of


class Inner(msgspec.Struct):
    token: str = "none"


class Outer(msgspec.Struct, rename="camel"):
    name: str
    size: int = 3
    inner_part: Inner | UnsetType = UNSET
    body: Raw = Raw(b"{}")
    number: Id | UnsetType = UNSET


def read(text: str) -> Outer:
    return reader_of(Outer).decode(text.encode())


@pytest.mark.parametrize("member", ["size", "innerPart", "body", "number"])
def test_null_in_an_optional_member_is_as_good_as_none(member: str) -> None:
    assert read(f'{{"name": "a", "{member}" : null }}') == read('{"name": "a"}')


def test_the_rule_holds_within_members_too() -> None:
    read_inner = read('{"name":"a","innerPart":{"token":null,"more":null}}').inner_part
    assert read_inner == Inner()


def test_what_is_carried_untouched_keeps_its_nulls() -> None:
    assert bytes(read('{"name":"a","size":null,"body":{"x": null}}').body) == b'{"x": null}'


def test_null_in_a_required_member_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `null` - at `\$.name`"):
        read('{"name":null,"size":null}')


@pytest.mark.parametrize("text", ["null", "[null]", '"null"', "[]", "3"])
def test_what_is_no_object_is_refused_in_the_words_of_its_type(text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `object`"):
        read(text)


def test_a_text_that_says_null_is_a_text() -> None:
    assert read('{"name":"null"}').name == "null"


@pytest.mark.parametrize("value", [0, -100123, 2**63 - 1, "x", ""])
def test_an_id_is_a_text_or_a_number_and_stays_what_it_is(value: str | int) -> None:
    assert read(msgspec.json.encode({"name": "a", "number": value}).decode()).number == value


@pytest.mark.parametrize("value", [1.5, True, [], {}, 2**63])
def test_an_id_is_nothing_else(value: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(msgspec.json.encode({"name": "a", "number": value}).decode())
