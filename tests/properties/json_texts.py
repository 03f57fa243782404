"""JSON as people really spell it: every number, escape, blank and duplicate is kept as it is."""

from __future__ import annotations

import json

from hypothesis import strategies as st

# What a decoder and encoder in between would change, lose or refuse.
_ODD_NUMBERS = ["1e400", "-1e400", "-0", "-0.0", "1E+5", "1e-400", "0.1000", "9" * 5_000]
_CHARACTERS = st.characters(codec="utf-8")
_ESCAPES = st.sampled_from([r"\u0041", r"\ud83d\ude00", r"\/", r"\u0000", r"\"", r"\\", r"\n"])


def strings() -> st.SearchStrategy[str]:
    plain = st.text(_CHARACTERS, max_size=8).map(lambda text: json.dumps(text)[1:-1])
    unescaped = st.text(_CHARACTERS, max_size=8).map(
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1]
    )
    parts = st.lists(plain | unescaped | _ESCAPES, max_size=4)
    return parts.map(lambda found: '"' + "".join(found) + '"')


def scalars() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(["true", "false", "null", *_ODD_NUMBERS]),
        st.integers().map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        strings(),
    )


def texts(blanks: str = " \t\r") -> st.SearchStrategy[str]:
    """Any JSON text without blanks around it, with these blanks within."""
    blank = st.text(st.sampled_from(blanks), max_size=2)
    return st.recursive(
        scalars(), lambda inner: _arrays(inner, blank) | _objects(inner, blank), max_leaves=12
    )


def objects(blanks: str = " \t\r") -> st.SearchStrategy[str]:
    """Any JSON object."""
    return _objects(texts(blanks), st.text(st.sampled_from(blanks), max_size=2))


def _arrays(inner: st.SearchStrategy[str], blank: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    item = st.tuples(blank, inner, blank).map("".join)
    return st.lists(item, max_size=4).map(lambda items: "[" + ",".join(items) + "]")


def _objects(
    inner: st.SearchStrategy[str], blank: st.SearchStrategy[str]
) -> st.SearchStrategy[str]:
    key = st.sampled_from(['"a"', '"a"', '"payload"', '"\\u0061"']) | strings()
    member = st.tuples(blank, key, blank, st.just(":"), blank, inner, blank).map("".join)
    return st.lists(member, max_size=4).map(lambda members: "{" + ",".join(members) + "}")


def chunks_of(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Any way to cut `data` into pieces."""
    cuts = st.lists(st.integers(0, len(data)), max_size=12).map(sorted)
    return cuts.map(
        lambda at: [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]
    )
