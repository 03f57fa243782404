"""The README is short, names every page of the documentation, and all links lead somewhere."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.pages import DOCS, PAGES, README, ROOT, anchors_of, links_of, rows_of, text_of

MAX_WORDS = 1_500


def test_the_readme_has_at_most_1500_words() -> None:
    assert len(text_of(README).split()) <= MAX_WORDS  # as `wc -w` counts


def test_its_index_lists_every_page_of_the_documentation() -> None:
    rows = rows_of(README, "Documentation")
    listed = [link for cells in rows for link in re.findall(r"\((.*?)\)", cells[0])]
    assert sorted(listed) == DOCS


def test_the_python_versions_it_names_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    *first, last = versions
    assert f"tested with Python {', '.join(first)} and {last}" in text_of(README)


def test_its_two_commands_are_targets_of_make() -> None:
    targets = re.findall(r"^(\w+):", text_of("Makefile"), re.M)
    assert {"run", "test"} <= set(targets)
    assert re.findall(r"^make (\w+) ", text_of(README), re.M) == ["run", "test"]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: str) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(str(target.resolve().relative_to(ROOT))), link


def test_the_folders_that_contributing_names_exist() -> None:
    for cells in rows_of("CONTRIBUTING.md", "Structure"):
        for folder in re.findall(r"`(.*?)`", cells[0]):
            assert (ROOT / folder).exists(), folder
