"""Addresses and patterns: what is one, and what matches what."""

from __future__ import annotations

import time

import pytest

from busd.bus.address import MAX_CHARACTERS, check_address, check_pattern, compile_glob
from busd.errors import MalformedAddress, MalformedPattern

GOOD = ["tg:1", "agent:system", "telegram-bridge", "a", "é:ü", "x" * MAX_CHARACTERS, "a/b#c%d"]
BAD = ["", " ", "a b", "a\tb", "a\n", "\x00", "x" * (MAX_CHARACTERS + 1), "a\u00a0b", "\u200b"]


@pytest.mark.parametrize("text", GOOD)
def test_printable_text_without_spaces_is_an_address(text: str) -> None:
    check_address(text)
    check_pattern(text)


@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_neither_address_nor_pattern(text: str) -> None:
    with pytest.raises(MalformedAddress) as refused:
        check_address(text)
    assert len(str(refused.value.data["address"])) <= MAX_CHARACTERS
    with pytest.raises(MalformedPattern):
        check_pattern(text)


@pytest.mark.parametrize("text", ["*", "tg:*", "a?", "?*?"])
def test_wildcards_belong_to_patterns_only(text: str) -> None:
    check_pattern(text)
    with pytest.raises(MalformedAddress, match="belong to patterns"):
        check_address(text)


@pytest.mark.parametrize(
    ("pattern", "address", "is_match"),
    [
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*:1", "tg:1", True),
        ("*:1", "tg:12", False),
        ("a*b*c", "a--b--c", True),
        ("a*b*c", "a--c--b", False),
        ("a*", "a", True),
        ("**", "", True),
        ("a.c", "abc", False),
        ("[ab]*", "a", True),
        ("[ab]*", "c", False),
        ("[!ab]*", "c", True),
        ("[a-c]x", "bx", True),
        ("[]]", "]", True),
        ("[ab", "[ab", True),
        ("[!]", "[!]", True),
        ("*aab", "aaab", True),
        ("*ab?", "ababc", True),
    ],
)
def test_a_glob_matches_the_whole_address(pattern: str, address: str, is_match: bool) -> None:
    assert bool(compile_glob(pattern).fullmatch(address)) is is_match


def test_no_pattern_takes_long_to_try() -> None:
    # Tried in all ways, five stars in 255 characters would take minutes.
    hostile = compile_glob("*a*a*a*a*b")
    start = time.process_time()
    assert hostile.fullmatch("a" * MAX_CHARACTERS) is None
    assert time.process_time() - start < 1
