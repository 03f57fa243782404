"""Splitting: pieces that fit, cut where a reader expects it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busd.bridge import split_text


def in_utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@given(st.text(st.sampled_from("ab \n😀"), max_size=200), st.integers(2, 20))
def test_pieces_fit_and_nothing_but_white_space_is_lost(text: str, limit: int) -> None:
    pieces = split_text(text, limit, in_utf16)
    assert all(0 < in_utf16(piece) <= limit for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_text_is_cut_between_paragraphs_lines_or_words() -> None:
    assert split_text("one two\n\nthree four five", 17) == ["one two", "three four five"]
    assert split_text("one two\nthree four", 12) == ["one two", "three four"]
    assert split_text("one two three", 8) == ["one two", "three"]
    assert split_text("onetwothree", 4) == ["onet", "woth", "ree"]
    assert split_text(" \n ", 4) == []


def test_a_limit_is_positive() -> None:
    with pytest.raises(ValueError, match="at least one"):
        split_text("a", 0)
