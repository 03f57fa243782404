"""`@name` and `@agent:name` in a text.

A name that is known in the room wins, the longest one first: names may contain spaces, and Chinese
text has none behind a name. `@agent:` may also name an agent that is not known yet: letters,
digits, `_`, `-` and `.` belong to its name. `@agent` or `@代理` alone is the one that answers by
default.
Full-width `＠` and `：` are read as `@` and `:`. Whoever else follows an `@` is nobody.
"""

from __future__ import annotations

import re

from busd.gateway import Author
from busd_plugins.group.people import DEFAULT_AGENT, MAX_NAME, People

MAX_MENTIONS = 100
# An @ within a word is no mention but an address of mail. A name ends at the next @ at the latest,
# so each character is looked at by one mention only.
_AT = re.compile(r"(?<![A-Za-z0-9_.+-])[@＠](?P<rest>[^@＠\n]+)")
_AGENT = re.compile(r"agent[:：](?P<name>.*)", re.IGNORECASE | re.DOTALL)
_DEFAULT = re.compile(r"(?:agent|代理)(?!\w)", re.IGNORECASE)
_NAME = re.compile(r"[\w.-]+")


def find_mentions(text: str, people: People) -> list[Author]:
    """Return whom a text mentions, in its order, nobody twice."""
    found: dict[tuple[str, str], Author] = {}
    for at in _AT.finditer(text):
        author = _mentioned(at["rest"][: MAX_NAME + len("agent:") + 1], people)
        if author is not None:
            found.setdefault((author.type, author.id), author)
            if len(found) == MAX_MENTIONS:
                break
    return list(found.values())


def _mentioned(rest: str, people: People) -> Author | None:
    """Return whom the text behind an @ begins with."""
    if agent := _AGENT.match(rest):
        name = agent["name"]
        if known := people.at_start(name, ("agent",)):
            return known
        token = _NAME.match(name)
        unknown = token[0].rstrip(".-") if token else ""
        return Author(unknown, "agent", unknown) if unknown else None
    if known := people.at_start(rest, ("user", "agent")):
        return known
    return DEFAULT_AGENT if _DEFAULT.match(rest) else None
