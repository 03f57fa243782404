"""Read JSON as people write it: with comments, and with commas behind the last element.

Strict JSON is read at full speed; only what is none is read again without what JSON lacks.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_decode = msgspec.json.Decoder(Any).decode
# Strings first, so that what looks like a comment inside of one stays. Each alternative consumes
# what it matches for good: the time is linear.
_PART = re.compile(
    r'"(?:[^"\\]|\\.)*+"?'
    r"|//[^\n]*+"
    r"|/\*(?:[^*]|\*(?!/))*+(?:\*/)?"
    r"|,(?=(?:\s|//[^\n]*+(?=\n)|/\*(?:[^*]|\*(?!/))*+\*/)*+[\]}])",
    re.DOTALL,
)


def parse_lenient(text: str) -> Any:
    """Return a JSON value, any comments and trailing commas left out; raise ValueError."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        pass
    try:
        return _decode(_PART.sub(_keep, text))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair, which UTF-8 cannot express") from None
    except msgspec.MsgspecError as problem:
        raise ValueError(str(problem)) from None


def _keep(part: re.Match[str]) -> str:
    """Return a string as it is, and as much space as a comment or comma takes."""
    said = part[0]
    return said if said[0] == '"' else " " * len(said)
