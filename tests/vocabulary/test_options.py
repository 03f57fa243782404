"""Which option an answer means."""

from __future__ import annotations

import pytest

from busd.vocabulary.options import choose

YES_NO = ["yes", "no"]


@pytest.mark.parametrize(
    ("answer", "options", "chosen"),
    [
        ("yes", YES_NO, 0),
        (" NO\n", YES_NO, 1),
        ("y", YES_NO, 0),
        ("2", YES_NO, 1),
        ("nope", YES_NO, None),
        ("yno", YES_NO, None),
        ("", YES_NO, None),
        ("0", YES_NO, None),
        ("3", YES_NO, None),
        ("-1", YES_NO, None),
        ("²", YES_NO, None),
        ("9" * 5_000, YES_NO, None),
        ("d", ["delete", "deny"], None),
        ("del", ["delete", "deny"], 0),
        ("delete", ["delete", "delete all"], 0),
        ("DELETE ", ["delete", "delete all"], 0),
        ("A", ["a", "A"], 1),
        ("2", ["2", "1"], 0),
        ("1", ["20 eggs", "10 eggs"], None),
        ("2", ["10 eggs", "20 eggs"], 1),
        ("STRASSE", ["straße", "weg"], 0),
        ("ja", [], None),
    ],
)
def test_an_option_is_meant_by_its_text_its_number_or_how_it_alone_begins(
    answer: str, options: list[str], chosen: int | None
) -> None:
    assert choose(answer, options) == chosen
