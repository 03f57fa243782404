"""The documentation as the tests read it: pages, sections, tables and samples."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = "README.md"
DOCS = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
PAGES = [README, *DOCS, "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md"]

_FENCED = re.compile(r"^```.*?^```$", re.M | re.S)


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def section(page: str, title: str) -> str:
    """Return the text under a heading, up to the next one."""
    text = text_of(page)
    start, end = span_of(text, title)
    assert start >= 0, f"{page} has no section {title!r}"
    return text[start:end]


def span_of(text: str, title: str) -> tuple[int, int]:
    """Return where the text under a heading begins and ends; (-1, -1) if there is none."""
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##+ |\Z)", text, re.M | re.S)
    return found.span(1) if found else (-1, -1)


def rows_of(page: str, title: str) -> list[list[str]]:
    """Return the cells of the first table of a section, without its head."""
    found = re.search(r"(?:^\|.*\n)+", section(page, title), re.M)
    assert found, f"{page}: section {title!r} has no table"
    return [split_row(line) for line in found[0].splitlines()[2:]]


def split_row(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [cell.strip().replace("\\|", "|") for cell in cells]


def samples_of(text: str, *languages: str) -> list[tuple[str, str]]:
    """Return the language and the text of each fenced block, in order."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S)
    return [(language, block) for language, block in found if language in languages]


def anchors_of(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", text_of(page)), re.M)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def links_of(page: str) -> list[str]:
    """Return the links of a page that lead to files of this repository, or into the page."""
    found = re.findall(r"\]\(([^)\s]+)\)", _FENCED.sub("", text_of(page)))
    return [link for link in found if "://" not in link]
