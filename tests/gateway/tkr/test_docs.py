"""The page of the documentation: its conversation goes as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import busd_plugins.tkr
from busd.testing.gateway import open_gateway
from tests.gateway.tkr.played import Player, read_transcripts

PAGE = Path(__file__).parents[3] / "docs" / "dialects" / "tkr.md"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_the_conversation_of_the_page_goes_as_it_says() -> None:
    found = re.search(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    [transcript] = read_transcripts(f"# the page\n{found[1]}")
    async with open_gateway() as kit:
        await Player(kit).play(transcript)


def test_the_page_names_every_adapter() -> None:
    page = PAGE.read_text(encoding="utf-8")
    adapters = set(busd_plugins.tkr.__all__) - {"Tkr", "plugin"}
    assert {name for name in adapters if f"    {name}," in page} == adapters
    assert len(page.splitlines()) <= 150
