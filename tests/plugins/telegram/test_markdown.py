"""Markdown as Telegram shows it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busd_plugins.telegram.markdown import format_markdown, split_formatted, units
from busd_plugins.telegram.posting import entities_of


@pytest.mark.parametrize(
    ("source", "text", "spans"),
    [
        ("plain", "plain", []),
        (
            "**a** __b__ *c* _d_ ~~e~~",
            "a b c d e",
            ["bold", "bold", "italic", "italic", "strikethrough"],
        ),
        ("**bold _and italic_**", "bold and italic", ["bold", "italic"]),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name", []),
        (r"\*not\* \_this\_", "*not* _this_", []),
        ("`a * b * c` and ``d ` e``", "a * b * c and d ` e", ["code", "code"]),
        ("```python\nx = '**'\n```", "x = '**'", ["pre"]),
        ("```\nit is still streamed", "it is still streamed", ["pre"]),
        ("## Title ##\ntext", "Title\ntext", ["bold"]),
        ("- one\n  * two\n3. three", "• one\n  • two\n3. three", []),
        ("> said\n> before\nafter", "said\nbefore\nafter", ["blockquote"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n|---|---|\n| 1 | 2 |", ["pre"]),
        ("[**busd**](https://busd.example/a_(b)_c)", "busd", ["bold", "text_link"]),
        ("[no](javascript:alert)", "[no](javascript:alert)", []),
        ("---", "———", []),
        ("**never closed", "**never closed", []),
        ("<b>&amp;</b>", "<b>&amp;</b>", []),
    ],
)
def test_what_agents_write_is_shown_so(source: str, text: str, spans: list[str]) -> None:
    formatted = format_markdown(source)
    assert formatted.text == text
    assert [each.type for each in formatted.spans] == spans


def test_links_and_programs_say_where_and_in_which_language() -> None:
    formatted = format_markdown("[a](https://x.example)\n```py\nb\n```")
    link, program = entities_of(formatted) or []
    assert (link.url, program.language) == ("https://x.example", "py")


@settings(deadline=None)
@given(st.text(st.sampled_from("a *_`~[]()>#-|\n\\😀é:/htps"), max_size=300), st.integers(2, 50))
def test_pieces_fit_and_their_entities_stay_within_them(source: str, limit: int) -> None:
    formatted = format_markdown(source)
    pieces = split_formatted(formatted, limit)
    assert "".join("".join(each.text.split()) for each in pieces) == "".join(formatted.text.split())
    for piece in pieces:
        assert 0 < units(piece.text) <= limit
        for each in entities_of(piece) or []:
            assert 0 <= each.offset < each.offset + each.length <= units(piece.text)


@pytest.mark.parametrize("unit", ["**", "_", "`", "[", "*a", "[a](", "~~ ", ">", "**_"])
def test_odd_texts_take_no_long_time(unit: str) -> None:
    begun = time.process_time()
    format_markdown((unit * 1000 + "\n") * 32)
    assert time.process_time() - begun < 5
